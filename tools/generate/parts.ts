/** Generated parts of hand-written documents. */

/**
 * Replaces the text between `<!-- generated: name -->` and `<!-- end -->`, for each name. Throws if a marker is missing.
 */
export function replaceParts(path: string, document: string, parts: Record<string, string>): string {
  let text = document
  for (const [name, part] of Object.entries(parts)) {
    const begin = `<!-- generated: ${name} -->\n`
    const from = text.indexOf(begin)
    const to = text.indexOf('<!-- end -->', from)
    if (from < 0 || to < 0) throw new Error(`${path} has no markers for "${name}"`)
    text = `${text.slice(0, from + begin.length)}${part}${text.slice(to)}`
  }
  return text
}
