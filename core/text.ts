/** Text functions in linear time. */

/** The text without trailing `characters`. An expression such as `/=+$/` would take quadratic time. */
export function withoutTrailing(text: string, characters: string): string {
  let end = text.length
  while (end > 0 && characters.includes(text.charAt(end - 1))) end -= 1
  return text.slice(0, end)
}

/** The order of UTF-8, which is that of code points and of databases; JavaScript compares halves of those above U+FFFF. For well-formed texts. */
export function compareText(left: string, right: string): number {
  const length = Math.min(left.length, right.length)
  for (let index = 0; index < length; index++) {
    const [one, other] = [left.charCodeAt(index), right.charCodeAt(index)]
    if (one !== other) return isHalf(one) === isHalf(other) ? one - other : isHalf(one) ? 1 : -1
  }
  return left.length - right.length
}

const isHalf = (unit: number) => unit >= 0xd800 && unit <= 0xdfff
