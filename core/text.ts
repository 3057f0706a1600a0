/** Text functions in linear time. */

/** The text without trailing `characters`. An expression such as `/=+$/` would take quadratic time. */
export function withoutTrailing(text: string, characters: string): string {
  let end = text.length
  while (end > 0 && characters.includes(text.charAt(end - 1))) end -= 1
  return text.slice(0, end)
}
