// Runs before the first paint, so that a chosen theme never flashes.
"use strict";
(() => {
  const chosen = localStorage.getItem("scope-desk-theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
})();
