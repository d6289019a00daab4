// The keyboard: which key does what, and which keys belong to the control that has the focus.

const $ = (id) => document.getElementById(id);
const TO_THE_LIST = /^[jkpnNqQ]$|^(Arrow|Home|End|Page)/;
const OWN = /^(Enter| |Arrow|Home|End|Page)/;

export function bindKeys(actions, isReady) {
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || $("keys").open) return;
    if (!isReady() && !/^[to?]$/.test(event.key)) return; // the other keys act on a session, which is still being loaded
    const { target } = event;
    if (target.matches("input:not([type=checkbox]), select, textarea")) {
      if (event.key === "Escape") $("list").focus();
      return;
    }
    if (target.matches("button, summary, [role=separator], input, .json, .view") && OWN.test(event.key)) return;
    const act = actions[event.key];
    if (!act) return;
    event.preventDefault();
    if (TO_THE_LIST.test(event.key)) $("list").focus({ preventScroll: true });
    act();
  });
}
