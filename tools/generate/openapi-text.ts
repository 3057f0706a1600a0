/**
 * The text of openapi.json: an object or list that fits into a line is one line, so that a change of a part is a change of a line.
 * Lines are not indented: that was an eighth of the file.
 */

const MAX_LINE_CHARACTERS = 140

export function renderDocument(document: object): string {
  return `${textOf(document)}\n`
}

function textOf(value: unknown): string {
  const line = JSON.stringify(value)
  if (line.length <= MAX_LINE_CHARACTERS || typeof value !== 'object' || value === null) return line
  const rows = Array.isArray(value)
    ? value.map(textOf)
    : Object.entries(value).map(([key, item]) => `${JSON.stringify(key)}:${textOf(item)}`)
  const [open, close] = Array.isArray(value) ? '[]' : '{}'
  return `${open}\n${rows.join(',\n')}\n${close}`
}
