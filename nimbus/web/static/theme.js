// Before the first paint: else a page that was set dark shows light for a moment.
try { document.documentElement.dataset.theme = localStorage.getItem("theme") || "auto"; } catch { /* no storage: as the system */ }
