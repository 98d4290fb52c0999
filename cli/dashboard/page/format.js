// Turns numbers, times and sizes into text for people. A value that is not known becomes an en dash.

export const NOT_KNOWN = "–";

function known(value) {
  return typeof value === "number" && Number.isFinite(value);
}

export function whole(value) {
  return known(value) ? Math.round(value).toLocaleString("en") : NOT_KNOWN;
}

export function loss(value) {
  return known(value) ? value.toFixed(4) : NOT_KNOWN;
}

export function share(value) {
  return known(value) ? `${(100 * value).toFixed(1)} %` : NOT_KNOWN;
}

/** Return a duration such as 12 s, 7 min, 3 h or 2 d, as `./disttrain status` shows it. */
export function span(seconds) {
  if (!known(seconds)) return NOT_KNOWN;
  const count = Math.max(0, Math.round(seconds));
  for (const [unit, length] of [["d", 86400], ["h", 3600], ["min", 60]]) {
    if (count >= 2 * length) return `${Math.floor(count / length)} ${unit}`;
  }
  return `${count} s`;
}

export function seconds(value) {
  return known(value)
    ? `${value.toLocaleString("en", { minimumFractionDigits: 1, maximumFractionDigits: 1 })} s`
    : NOT_KNOWN;
}

export function size(bytes) {
  if (!known(bytes)) return NOT_KNOWN;
  let count = bytes;
  for (const unit of ["B", "kB", "MB", "GB"]) {
    if (count < 1000) return unit === "B" ? `${count} B` : `${count.toFixed(1)} ${unit}`;
    count /= 1000;
  }
  return `${count.toFixed(1)} TB`;
}

export function clock(unixSeconds) {
  return new Date(1000 * unixSeconds).toLocaleTimeString("en", { hour12: false });
}

export function day(unixSeconds) {
  return new Date(1000 * unixSeconds).toLocaleString("en", { hour12: false });
}

/** Return the text as a sentence, with a capital at its beginning and a full stop at its end. */
export function sentence(text) {
  const trimmed = text.trim();
  const begun = trimmed.charAt(0).toUpperCase() + trimmed.slice(1);
  return /[.!?]$/.test(begun) ? begun : `${begun}.`;
}
