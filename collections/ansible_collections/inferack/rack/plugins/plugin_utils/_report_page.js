"use strict";
for (const cell of document.querySelectorAll("button[data-opens]")) {
  cell.addEventListener("click", () => document.getElementById(cell.dataset.opens).showModal());
}
for (const dialog of document.querySelectorAll("dialog")) {
  dialog.querySelector(".close").addEventListener("click", () => dialog.close());
  // A click on the dialog element itself is one on its backdrop: its padding box is filled by its children's wrapper.
  dialog.addEventListener("click", (event) => {
    const box = dialog.getBoundingClientRect();
    const inside = event.clientX >= box.left && event.clientX <= box.right && event.clientY >= box.top && event.clientY <= box.bottom;
    if (event.target === dialog && !inside) dialog.close();
  });
}
for (const row of document.querySelectorAll(".gpus")) {
  row.addEventListener("keydown", (event) => {
    const cells = [...row.querySelectorAll("button")];
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    const next = cells[cells.indexOf(document.activeElement) + step];
    if (next) { next.focus(); event.preventDefault(); }
  });
}
for (const link of document.querySelectorAll(".node > .name")) {
  link.addEventListener("click", () => {
    document.getElementById("show-all").checked = true;
    const list = document.querySelector(link.getAttribute("href") + " > .rest");
    if (list) list.open = true;
  });
}
