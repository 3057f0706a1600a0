/** The text of openapi.json: an object or list that fits into a line is one line, so that a change of a part is a change of a line. */

const MAX_LINE_CHARACTERS = 140

export function renderDocument(document: object): string {
  return `${textOf(document, '')}\n`
}

function textOf(value: unknown, indentation: string): string {
  const line = JSON.stringify(value)
  if (indentation.length + line.length <= MAX_LINE_CHARACTERS || typeof value !== 'object' || value === null)
    return line
  const inner = `${indentation} `
  const rows = Array.isArray(value)
    ? value.map((item) => textOf(item, inner))
    : Object.entries(value).map(([key, item]) => `${JSON.stringify(key)}:${textOf(item, inner)}`)
  const [open, close] = Array.isArray(value) ? '[]' : '{}'
  return `${open}\n${rows.map((row) => `${inner}${row}`).join(',\n')}\n${indentation}${close}`
}
