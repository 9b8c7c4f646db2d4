import * as keys from "./keys.js";
import * as live from "./live.js";
import * as logs from "./logs.js";
import * as times from "./times.js";

times.begin();
keys.begin();
logs.begin();
addEventListener("nimbus:shown", logs.begin);
live.begin();
// A graph that does not fit is scrolled to its middle, where its roots are.
const graph = document.getElementById("graph")?.parentElement;
if (graph) graph.scrollLeft = (graph.scrollWidth - graph.clientWidth) / 2;
// On a narrow screen the navigation is one line: scroll it to the current page.
const nav = document.getElementById("nav"), present = nav?.querySelector("[aria-current]");
if (present) nav.scrollLeft = present.offsetLeft - nav.offsetLeft - 8;
