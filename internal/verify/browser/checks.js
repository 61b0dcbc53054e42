// Looks for what keeps people from reading or using a page. It returns a list of problems, in
// words. The rules are those of WCAG 2.2 (their numbers are in parentheses) that need no judgement.
(() => {
  const problems = [];
  const problem = (what, where) => problems.push(where ? `${what}: ${describe(where)}` : what);
  const describe = (e) => `${e.tagName.toLowerCase()}${e.className ? "." + e.className : ""}` +
    ` "${(e.textContent || e.name || "").trim().replace(/\s+/g, " ").slice(0, 40)}"`;
  const all = (selector) => [...document.querySelectorAll(selector)];
  const shown = (e) => e.checkVisibility({ visibilityProperty: true }) && !e.closest(".hidden");

  // Colours: [red, green, blue, alpha].
  const colour = (text) => {
    const numbers = (text.match(/^rgba?\(([^)]*)\)$/) || [])[1];
    if (!numbers) {
      problem(`colour ${text} is not understood`);
      return [0, 0, 0, 1];
    }
    const c = numbers.split(",").map(Number);
    return [c[0], c[1], c[2], c.length > 3 ? c[3] : 1];
  };
  const mixed = (top, ground, share) => top * share + ground * (1 - share);
  const over = (top, ground) => [0, 1, 2].map((i) => mixed(top[i], ground[i], top[3])).concat(1);
  const luminance = (c) => {
    const linear = (v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
    const [r, g, b] = c.map((v) => linear(v / 255));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const contrast = (a, b) => {
    const [dark, light] = [luminance(a), luminance(b)].sort((x, y) => x - y);
    return (light + 0.05) / (dark + 0.05);
  };
  // What is behind the text of an element: the backgrounds of it and of all around it.
  const ground = (e) => {
    if (!e) {
      const dark = matchMedia("(prefers-color-scheme: dark)").matches;
      return dark ? [18, 18, 18, 1] : [255, 255, 255, 1];
    }
    const style = getComputedStyle(e);
    if (style.backgroundImage !== "none" || style.opacity !== "1" || style.filter !== "none") {
      problem("contrast over a picture, or through opacity, is not measured", e);
    }
    const own = colour(style.backgroundColor);
    return own[3] === 1 ? own : over(own, ground(e.parentElement));
  };
  const mustDiffer = (what, foreground, behind, least, e) => {
    const ratio = contrast(over(colour(foreground), behind), behind);
    if (ratio < least) {
      problem(`${what} has a contrast of ${ratio.toFixed(2)}, and needs ${least}`, e);
    }
  };

  // Contrast of each text (1.4.3), and of what shows where a control or a tick is (1.4.11).
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const seen = new Set();
  while (walker.nextNode()) {
    const e = walker.currentNode.parentElement;
    if (walker.currentNode.data.trim() && !seen.has(e) && shown(e)) {
      seen.add(e);
      mustDiffer("text", getComputedStyle(e).color, ground(e), 4.5, e);
    }
  }
  if (seen.size < 5) {
    problem(`only ${seen.size} texts were found`);
  }
  for (const e of all("input:not([type=hidden]), button, .button, .strip li").filter(shown)) {
    const style = getComputedStyle(e);
    if (!e.matches("li")) {
      mustDiffer("text", style.color, ground(e), 4.5, e);
    }
    mustDiffer("border", style.borderTopColor, ground(e.parentElement), 3, e);
  }

  // The document: its language (3.1.1), title (2.4.2), headings (1.3.1, 2.4.6) and main part.
  if (!document.documentElement.lang) {
    problem("no lang");
  }
  if (!document.title.trim()) {
    problem("no title");
  }
  const levels = all("h1, h2, h3, h4, h5, h6").map((e) => Number(e.tagName[1]));
  if (levels.filter((level) => level === 1).length !== 1) {
    problem(`${levels.filter((level) => level === 1).length} h1`);
  }
  if (levels.some((level, i) => level > (levels[i - 1] || 0) + 1)) {
    problem(`the levels of headings are ${levels}`);
  }
  if (all("main").length !== 1) {
    problem("not one main");
  }
  const ids = all("[id]").map((e) => e.id);
  if (new Set(ids).size !== ids.length) {
    problem(`an ID is there twice, among ${ids}`);
  }

  // Names: labels of inputs (3.3.2), of links, buttons and regions (4.1.2), of pictures (1.1.1).
  const named = (e) => (e.ariaLabel || e.textContent).trim();
  all("input:not([type=hidden]), select, textarea").forEach((e) => {
    if (![...e.labels].some(named) && !e.ariaLabel) {
      problem("no label", e);
    }
  });
  all("a, button").filter((e) => !named(e)).forEach((e) => problem("no name", e));
  all("nav, section, [role=region]").filter((e) => !e.ariaLabel)
    .forEach((e) => problem("no aria-label", e));
  all("img:not([alt])").forEach((e) => problem("no alt", e));
  all("th:not([scope])").forEach((e) => problem("no scope", e));

  // Reflow (1.4.10): only regions that the keyboard can scroll (2.1.1) are wider than the screen.
  const root = document.documentElement;
  if (root.clientWidth !== screen.width || root.scrollWidth > screen.width) {
    problem(`the page is ${root.scrollWidth} px wide, laid out for ${root.clientWidth}, ` +
      `on ${screen.width}`);
  }
  const scrolls = (e) => e.scrollWidth > e.clientWidth && getComputedStyle(e).overflowX === "auto";
  all("body *").filter((e) => scrolls(e) && e.tabIndex !== 0)
    .forEach((e) => problem("the keyboard cannot scroll it", e));

  // The size of what is tapped (2.5.8): 24 px, unless it is a link in a text.
  all("nav a, button, .button, input:not([type=hidden])").filter(shown).forEach((e) => {
    const box = e.getBoundingClientRect();
    if (box.width < 24 || box.height < 24) {
      problem(`it is ${box.width.toFixed()} by ${box.height.toFixed()} px`, e);
    }
  });
  return problems;
})();
