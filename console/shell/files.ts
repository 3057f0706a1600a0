/** Files that the page gives to the browser's downloads. */

/** This is longer than a browser takes to read it. */
const KEPT_MS = 60_000
const CSV = 'text/csv;charset=utf-8'

export function saveFile(name: string, text: string, type = CSV): void {
  saveBlob(name, new Blob([text], { type }))
}

export function saveBlob(name: string, content: Blob): void {
  const link = document.createElement('a')
  link.href = URL.createObjectURL(content)
  link.download = name
  link.click()
  setTimeout(() => URL.revokeObjectURL(link.href), KEPT_MS)
}

const NEEDS_QUOTES = /[",\r\n]/
const cellOf = (text: string) => (NEEDS_QUOTES.test(text) ? `"${text.replaceAll('"', '""')}"` : text)

/** RFC 4180, with a header. */
export function csvOf(header: readonly string[], rows: readonly (readonly string[])[]): string {
  return [header, ...rows].map((row) => `${row.map(cellOf).join(',')}\r\n`).join('')
}
