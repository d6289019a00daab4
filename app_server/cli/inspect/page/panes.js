// The panes: tabs, the width of the list, and light or dark.

const $ = (id) => document.getElementById(id);

export class Tabs {
  constructor(names, onOpen) {
    this.names = names;
    this.onOpen = onOpen;
    this.current = names[0];
    for (const each of names) {
      $(`tab-${each}`).addEventListener("click", () => this.open(each));
      $(`tab-${each}`).addEventListener("keydown", (event) => {
        const at = names.indexOf(each);
        const next = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: names.length - 1 }[event.key];
        if (next === undefined) return;
        event.preventDefault();
        this.open(names[(next + names.length) % names.length]);
        $(`tab-${this.current}`).focus();
      });
    }
    this.open(this.current);
  }

  open(name) {
    this.current = name;
    for (const each of this.names) {
      $(`tab-${each}`).setAttribute("aria-selected", String(each === name));
      $(`tab-${each}`).tabIndex = each === name ? 0 : -1;
      $(`view-${each}`).hidden = each !== name;
    }
    this.onOpen();
  }
}

export function splitPanes(onChange) {
  const split = $("split");
  function set(share) {
    const held = Math.min(0.8, Math.max(0.25, share));
    document.querySelector(".panes").style.setProperty("--split", `${held * 100}%`);
    split.setAttribute("aria-valuenow", Math.round(held * 100));
    onChange();
  }
  split.addEventListener("pointerdown", (event) => {
    split.setPointerCapture(event.pointerId);
    split.onpointermove = (moved) => set(moved.clientX / innerWidth);
  });
  split.addEventListener("pointerup", () => (split.onpointermove = null));
  split.addEventListener("keydown", (event) => {
    const by = { ArrowRight: 2, ArrowLeft: -2 }[event.key];
    if (by) set((Number(split.getAttribute("aria-valuenow")) + by) / 100);
  });
}

function setTheme(name) {
  document.documentElement.dataset.theme = name;
  $("theme").title = `${name || "as the system"} (t)`;
  try {
    localStorage.setItem("theme", name);
  } catch {
    // the choice holds for this page
  }
}

export function nextTheme() {
  const now = document.documentElement.dataset.theme ?? "";
  const isDark = now ? now === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  setTheme(now ? "" : isDark ? "light" : "dark");
}

export function keptTheme() {
  try {
    setTheme(localStorage.getItem("theme") ?? "");
  } catch {
    setTheme("");
  }
}
