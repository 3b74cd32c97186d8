// Numbers as people read them: three digits and a unit.

const THIN = "\u202f";

/** A number in parts: `{ digits, unit }`. */
function scaled(number, step, units) {
  let unit = 0;
  while (Math.abs(number) >= step - 0.5 && unit + 1 < units.length) {
    number /= step;
    unit += 1;
  }
  const places = unit === 0 && Number.isInteger(number) || Math.abs(number) >= 99.95 ? 0 : Math.abs(number) >= 9.995 ? 1 : 2;
  return { digits: number.toFixed(places), unit: units[unit] };
}

const joined = ({ digits, unit }) => unit ? `${digits}${THIN}${unit}` : digits;

export const countParts = (number) =>
  Number.isInteger(number) && Math.abs(number) < 100_000
    ? { digits: grouped(number), unit: "" }
    : Math.abs(number) < 0.005 ? { digits: "0", unit: "" } : scaled(number, 1000, ["", "k", "M", "G", "T"]);
export const byteParts = (number) => scaled(number, 1024, ["B", "KiB", "MiB", "GiB", "TiB", "PiB"]);
export function timeParts(seconds) {
  if (!(seconds > 0)) return { digits: "0", unit: "s" };
  if (seconds < 0.9995e-6) return { digits: (seconds * 1e9).toFixed(0), unit: "ns" };
  if (seconds < 0.9995e-3) return scaled(seconds * 1e6, Infinity, ["µs"]);
  if (seconds < 0.9995) return scaled(seconds * 1e3, Infinity, ["ms"]);
  return scaled(seconds, Infinity, ["s"]);
}

export const count = (number) => joined(countParts(number));
export const bytes = (number) => joined(byteParts(number));
export const time = (seconds) => joined(timeParts(seconds));
export const grouped = (number) => Math.round(number).toLocaleString("en").replaceAll(",", THIN);
export const percent = (share) => {
  const hundredths = share * 100;
  return `${hundredths === 0 || hundredths >= 9.95 ? hundredths.toFixed(0) : hundredths.toFixed(1)}${THIN}%`;
};
export const rate = (perSecond) => `${count(perSecond)}/s`;

export function uptime(seconds) {
  const [days, hours, minutes] = [seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60].map(Math.floor);
  if (days > 0) return `${days}${THIN}d ${hours}${THIN}h`;
  if (hours > 0) return `${hours}${THIN}h ${minutes}${THIN}min`;
  if (minutes > 0) return `${minutes}${THIN}min ${Math.floor(seconds % 60)}${THIN}s`;
  return `${Math.floor(seconds)}${THIN}s`;
}

/** The path of a type, without its name. */
const pathOf = (name) => name?.match(/^[\p{L}\p{N}_:]+(?=::)/u)?.[0] ?? "";

/** The title of a process: its names and its label or else its kind, and behind them its kind or the path of its type. The
    title of the sums of a kind has the number of their processes behind it. */
export function titles({ names, label, kind, type, processes }) {
  if (processes) return { title: kind, more: `${count(processes)} ${processes === 1 ? "process" : "processes"}` };
  const own = [...names ?? [], label].filter(Boolean).join(", ");
  const named = kind ?? "unknown";
  return own ? { title: own, more: named } : { title: named, more: pathOf(type) };
}
