// Sorts a table by the column whose heading is pressed; the rows of a group stay together.
for (const button of document.querySelectorAll("table.sortable thead button")) {
  button.addEventListener("click", () => {
    const heading = button.closest("th");
    const bodies = [...heading.closest("table").tBodies];
    const value = (row) => {
      const cell = row.cells[heading.cellIndex];
      return cell.dataset.value ?? cell.textContent.trim();
    };
    const groups = bodies.map((body) =>
      [...body.rows].filter((row) => !row.classList.contains("title")));
    const isText = groups.flat().some((row) => isNaN(value(row)));
    const before = heading.getAttribute("aria-sort");
    // The largest number first, and the first word of the alphabet.
    const rises = before === "none" ? isText : before === "descending";
    for (const other of heading.parentElement.cells) other.setAttribute("aria-sort", "none");
    heading.setAttribute("aria-sort", rises ? "ascending" : "descending");
    groups.forEach((rows, i) => bodies[i].append(...rows.sort((a, b) => {
      const [x, y] = [value(a), value(b)];
      // A row without a value is last in both directions.
      if (x === "" || y === "") return (x === "") - (y === "");
      const order = isText ? x.localeCompare(y) : Number(x) - Number(y);
      return rises ? order : -order;
    })));
  });
}
