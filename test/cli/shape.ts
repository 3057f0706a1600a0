/** Output without what differs between two runs: ids, times, secrets, tokens. Widths stay, so that tables keep their form. */

const RULES: readonly (readonly [RegExp, string])[] = [
  [/[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}/g, 'uuid'],
  [/eyJ[\w-]+\.[\w-]+\.[\w-]+/g, 'token'],
  [/-----BEGIN[\s\S]*?-----END [A-Z ]+-----/g, 'pem'],
  [/\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?(Z|\+00)?/g, 'time'],
  [/(domain|client|channel|group)_[A-Za-z0-9]{22}/g, 'role'],
  [/\bpat_[\w-]+/g, 'pat'],
  [/\b[0-9a-f]{32,64}\b/g, 'hex'],
  // Names that the tests make unique.
  [/\b(d|u|ada|plant|secret-|pat |role )[0-9a-f]{8,12}\b/g, 'name'],
  [/\b\d+-\d+ of \d+(; go on with --offset \d+)?/g, 'page'],
]

/** JSON becomes its keys and the types of its values, the first item of each list. Text keeps its words. */
export function shapeOf(stdout: string): string {
  const plain = stdout.replaceAll('\r', '').trimEnd()
  const [first = '', ...more] = plain.split('\n')
  try {
    // A stream: one line of JSON for each event.
    if (first.startsWith('{"') && more.length > 0) return JSON.stringify(shape(JSON.parse(first)), undefined, 1)
    return JSON.stringify(shape(JSON.parse(plain)), undefined, 1)
  } catch {
    return (
      RULES.reduce(
        (text, [pattern, name]) =>
          text.replaceAll(pattern, (found: string) =>
            found.includes('\n') ? `<${name}>` : `<${name}>`.padEnd(Math.min(found.length, 40), '.'),
          ),
        plain,
      )
        .split('\n')
        // As many rows as there happen to be look alike.
        .filter((line, index, lines) => line !== lines[index - 1])
        .join('\n')
    )
  }
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
