/** Output without what differs between two runs: ids, times, secrets, numbers, and how many rows there happen to be. */

const RULES: readonly (readonly [RegExp, string])[] = [
  [/[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}/g, 'uuid'],
  [/eyJ[\w-]+\.[\w-]+\.[\w-]+/g, 'token'],
  [/-----BEGIN[\s\S]*?-----END [A-Z0-9 ]+-----/g, 'pem'],
  [/\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?(Z|\+00)?/g, 'time'],
  [/(domain|client|channel|group)_[\w-]{22}/g, 'role'],
  [/\bpat_[\w-]+/g, 'pat'],
  [/[\w.-]+@example\.com/g, 'email'],
  // The strongest isolation of guests that the machine has.
  // oxlint-disable-next-line no-control-regex -- what a terminal is sent
  [/(?<=isolation *\u{1B}\[22m +)(namespace|uid|process)\b/gu, 'level'],
  // 32 random bytes.
  [/(?<![\w-])[\w-]{43}(?![\w-])/g, 'secret'],
  // The address of a registry within a path: `_` stands for the colon.
  [/\b127\.0\.0\.1_\d+\b/g, 'registry'],
  [/(?<![\w<[;.])\d+\.\d+\b(?!\.)/g, 'number'],
  // Positions of messages.
  [/(?<![\w-])\d+-\d+-\d+(?![\w-])/g, 'position'],
  // Names that the tests make unique.
  [/\b(d|u|ada|plant|secret-|pat |role )[0-9a-f]{8,12}\b/g, 'name'],
  [/\b(?=[0-9a-f]*\d)[0-9a-f]{8,64}\b/g, 'name'],
  [/\b\d+-\d+ of \d+(; continue with --offset \d+)?/g, 'page'],
  // Not the numbers of a style, which follow an escape.
  [/(?<![\w<[;.])\d+(\.\d+)?\b/g, 'number'],
]

/** How often a line is redrawn depends on the duration of the work. */
const DRAWN: readonly (readonly [RegExp, string])[] = [
  // oxlint-disable-next-line no-control-regex -- what a terminal is sent
  [/(\u{1B}\[Ktask \S+ is \w+, [\d.]+ s)+\u{1B}\[K/gu, ''],
  // oxlint-disable-next-line no-control-regex -- what a terminal is sent
  [/(\u{1B}\[Kexporting \d+ KiB)+/gu, '\u{1B}[Kexporting <number> KiB'],
]

/** The heading of a table: bold capitals. */
// oxlint-disable-next-line no-control-regex -- what a terminal is sent
const HEADING = /^\u{1B}\[1m[A-Z][A-Z ]*\u{1B}\[22m$/u

/** JSON becomes its keys and the types of its values, the first item of each list. Text keeps its words. */
export function shapeOf(stdout: string): string {
  const plain = stdout.replaceAll('\r', '').trimEnd()
  const [first = '', ...more] = plain.split('\n')
  try {
    // A stream: one line of JSON for each event.
    if (first.startsWith('{"') && more.length > 0) return JSON.stringify(shape(JSON.parse(first)), undefined, 1)
    return JSON.stringify(shape(JSON.parse(plain)), undefined, 1)
  } catch {
    return shownShape(plain)
  }
}

/** Tables become their heading; of anything else the words stay, without widths that follow the values. */
function shownShape(text: string): string {
  const still = DRAWN.reduce((whole, [pattern, drawn]) => whole.replaceAll(pattern, drawn), text)
  const masked = RULES.reduce((whole, [pattern, name]) => whole.replaceAll(pattern, `<${name}>`), still)
  const lines: string[] = []
  let isInTable = false
  for (const line of masked.split('\n')) {
    const isRow = isInTable && line !== '' && !line.includes('<page>')
    if (isRow) {
      if (lines.at(-1) !== '<rows>') lines.push('<rows>')
      continue
    }
    isInTable = HEADING.test(line)
    lines.push(line.replaceAll(/ {2,}/g, '  ').trimEnd())
  }
  return lines.join('\n')
}

function shape(value: unknown): unknown {
  if (Array.isArray(value)) return value.length === 0 ? [] : [shape(value[0])]
  if (value !== null && typeof value === 'object')
    return Object.fromEntries(
      Object.entries(value)
        .toSorted(([one], [other]) => (one < other ? -1 : 1))
        .map(([key, one]) => [key, shape(one)]),
    )
  return value === null ? 'null' : typeof value
}
