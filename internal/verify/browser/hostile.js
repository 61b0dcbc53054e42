// Looks for what a hostile text could do to a page: add elements, or move what is around it. It
// returns a list of problems, in words.
(() => {
  const problems = [];
  const known = new Set(("html head meta title link body a header nav p code bdi form label input button main h1 h2 " +
    "section div table thead tbody tr th td dl dt dd ol ul li span strong time").split(" "));
  const invisible = /[^\P{C}\n]|[\p{Zl}\p{Zp}\p{Default_Ignorable_Code_Point}]|[^\P{Zs} ]|\p{M}{9}/u;
  for (const e of document.querySelectorAll("*")) {
    const name = e.tagName.toLowerCase();
    if (!known.has(name)) {
      problems.push(`an element ${name}`);
    }
    for (const a of e.attributes) {
      if (a.name.startsWith("on") || a.name === "style" || a.name === "dir" || a.name === "srcdoc") {
        problems.push(`an attribute ${a.name} of ${name}`);
      }
      if (["title", "aria-label", "placeholder", "content"].includes(a.name) && invisible.test(a.value)) {
        problems.push(`something invisible in ${a.name}: ${JSON.stringify(a.value)}`);
      }
    }
    const to = e.href || e.action;
    if (to && !String(to).startsWith(location.origin + "/ops/onerun/")) {
      problems.push(`a link to ${to}`);
    }
  }
  if (invisible.test(document.title)) {
    problems.push("something invisible in the title");
  }

  // Each line of a block is read from the left to the right. What is in a <bdi> is one piece of it.
  const block = (e) => {
    while (e && getComputedStyle(e).display.startsWith("inline") && e.tagName !== "BUTTON") {
      e = e.parentElement;
    }
    return e;
  };
  const before = new Map();
  const piece = (what, at, rects) => {
    for (const r of rects) {
      if (r.width === 0 || r.height === 0) {
        continue;
      }
      const was = before.get(at);
      const middle = (r.top + r.bottom) / 2;
      if (was && was.top < middle && middle < was.bottom && r.left < was.right - 2) {
        problems.push(`${JSON.stringify(what.slice(0, 40))} is left of what comes before it`);
      }
      before.set(at, r);
    }
  };
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode;
    const parent = node.parentElement;
    if (!node.data.trim() || parent.closest(".hidden, .skip")) {
      continue;
    }
    if (invisible.test(node.data)) {
      problems.push(`something invisible: ${JSON.stringify(node.data.slice(0, 80))}`);
    }
    const range = document.createRange();
    const bdi = parent.closest("bdi");
    if (bdi) {
      const rects = [...bdi.getClientRects()];
      // A text of several lines, or from the right to the left, is one box for each line.
      piece(node.data, block(bdi), rects);
      continue;
    }
    for (let i = 0; i < node.data.length; i++) {
      if (node.data[i].trim()) {
        range.setStart(node, i);
        range.setEnd(node, i + 1);
        piece(node.data, block(parent), range.getClientRects());
      }
    }
  }
  return problems;
})()
