import * as graph from "./graph.js";
import * as keys from "./keys.js";
import * as live from "./live.js";
import * as logs from "./logs.js";
import * as times from "./times.js";

times.begin();
keys.begin();
logs.begin();
addEventListener("nimbus:shown", logs.begin);
graph.begin();
live.begin();
// On a narrow screen the navigation is one line: scroll it to the current page.
const nav = document.getElementById("nav"), present = nav?.querySelector("[aria-current]");
if (present) nav.scrollLeft = present.offsetLeft - nav.offsetLeft - 8;
