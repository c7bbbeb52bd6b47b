// Colours by number. The ramps are of even steps in OKLCH lightness, so that they read without hue: by people who see few
// hues, and in print. Orange is kept for what is wrong.
const srgbOf = (lightness, chroma, hue) => {
  const a = chroma * Math.cos(hue * Math.PI / 180);
  const b = chroma * Math.sin(hue * Math.PI / 180);
  const l = (lightness + 0.3963377774 * a + 0.2158037573 * b) ** 3;
  const m = (lightness - 0.1055613458 * a - 0.0638541728 * b) ** 3;
  const s = (lightness - 0.0894841775 * a - 1.291485548 * b) ** 3;
  return [4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * s,
          -1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * s,
          -0.0041960863 * l - 0.7034186147 * m + 1.707614701 * s];
};

/** Bytes of the colour; less chroma where sRGB does not have it. */
const oklch = (lightness, chroma, hue) => {
  let linear = srgbOf(lightness, chroma, hue);
  for (let c = chroma; c > 0 && linear.some((x) => x < -1e-4 || x > 1.0001); c -= 0.005) linear = srgbOf(lightness, c, hue);
  return linear.map((x) => {
    const v = Math.min(Math.max(x, 0), 1);
    return Math.round(255 * (v <= 0.0031308 ? 12.92 * v : 1.055 * v ** (1 / 2.4) - 0.055));
  });
};

const media = {dark: matchMedia('(prefers-color-scheme: dark)'), print: matchMedia('print')};
const isDark = () => media.dark.matches && !media.print.matches;

const rampOf = (colour) => Array.from({length: 256}, (_, i) => colour(i / 255));
const ramps = {
  light: rampOf((t) => oklch(0.965 - 0.685 * t, 0.018 + 0.13 * Math.sin(Math.PI * Math.min(0.03 + 0.8 * t, 1)), 125 + 150 * t ** 0.75)),
  dark: rampOf((t) => oklch(0.275 + 0.665 * t, 0.06 + 0.085 * Math.sin(Math.PI * Math.min(0.15 + 0.8 * t, 1)), 275 - 155 * t ** 1.2)),
};
const twoSided = (dark) => rampOf((t) => {
  const size = Math.abs(2 * t - 1);
  const lightness = dark ? 0.28 + 0.55 * size : 0.965 - 0.55 * size;
  return oklch(lightness, 0.13 * size, t < 0.5 ? 75 : 255);
});
const twoSidedRamps = {light: twoSided(false), dark: twoSided(true)};

const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const colours = () => ({
  ink: style('--ink'), soft: style('--soft'), line: style('--line'), card: style('--card'), well: style('--well'),
  accent: style('--accent'), fault: style('--fault'), other: style('--there'),
  fault_bytes: isDark() ? [255, 145, 102] : [200, 60, 16],
  missing_bytes: isDark() ? [17, 23, 29] : [243, 245, 248],
  zero_bytes: isDark() ? [38, 46, 56] : [228, 232, 237],
  ramp: isDark() ? ramps.dark : ramps.light,
  two_sided: isDark() ? twoSidedRamps.dark : twoSidedRamps.light,
});
/** Of ranks: apart in lightness as well as in hue. */
const rankColour = (i) => `rgb(${oklch((isDark() ? 0.9 : 0.35) + (isDark() ? -0.1 : 0.1) * (i % 4), 0.15, 255 + 68 * i)})`;
