/** Generated parts of documents that are otherwise written by hand. */

/**
 * Replaces what stands between `<!-- generated: name -->` and `<!-- end -->`, for each name.
 * Throws when a marker is missing.
 */
export function replaceParts(path: string, document: string, parts: Record<string, string>): string {
  let text = document
  for (const [name, part] of Object.entries(parts)) {
    const begin = `<!-- generated: ${name} -->\n`
    const from = text.indexOf(begin)
    const to = text.indexOf('<!-- end -->', from)
    if (from < 0 || to < 0) throw new Error(`${path} has lost the markers of "${name}"`)
    text = `${text.slice(0, from + begin.length)}${part}${text.slice(to)}`
  }
  return text
}
