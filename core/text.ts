/** Work on text that costs one pass over it. */

/** The text without those of the characters that it ends with. An expression such as `/=+$/` would try every run of them anew. */
export function withoutTrailing(text: string, characters: string): string {
  let end = text.length
  while (end > 0 && characters.includes(text.charAt(end - 1))) end -= 1
  return text.slice(0, end)
}
