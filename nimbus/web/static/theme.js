// Runs before the first paint: otherwise a dark page is light for a moment.
try { document.documentElement.dataset.theme = localStorage.getItem("theme") || "auto"; } catch { /* no storage: as the system */ }
