/** Challenges of `WWW-Authenticate` (RFC 9110 section 11.6.1), which registries send with 401. */

export type Challenge = {
  /** `bearer`, `basic` and others, in lower case. */
  scheme: string
  /** Parameters by lower-case name: `realm`, `service`, `scope`. */
  parameters: Record<string, string>
}

const MAX_HEADER_CHARS = 8192
const TOKEN = /[!#$%&'*+\-.^_`|~0-9A-Za-z]+/y
const QUOTED = /"((?:[^"\\]|\\.)*)"/y
const SPACE = /[ \t]*/y

/**
 * Parses one header value, which can contain several challenges. Invalid text ends the list: a registry that sends it
 * after a usable challenge is still usable.
 */
export function parseChallenges(header: string): Challenge[] {
  if (header.length > MAX_HEADER_CHARS) return []
  const challenges: Challenge[] = []
  const reader = createReader(header)
  while (!reader.isAtEnd()) {
    reader.skipCommas()
    const word = reader.match(TOKEN)
    if (word === undefined) break
    // `name=value` belongs to the previous challenge, anything else begins a new one.
    if (reader.isNext('=') && challenges.length > 0) {
      const value = reader.value()
      if (value === undefined) break
      const parameters = challenges.at(-1)?.parameters
      if (parameters !== undefined && !Object.hasOwn(parameters, word.toLowerCase()))
        parameters[word.toLowerCase()] = value
    } else {
      challenges.push({ scheme: word.toLowerCase(), parameters: Object.create(null) as Record<string, string> })
    }
  }
  return challenges
}

function createReader(text: string) {
  let position = 0
  function match(pattern: RegExp): string | undefined {
    pattern.lastIndex = position
    const found = pattern.exec(text)
    if (found === null) return undefined
    position = pattern.lastIndex
    return found[1] ?? found[0]
  }
  return {
    match,
    isAtEnd: () => position >= text.length,
    skipCommas() {
      match(SPACE)
      while (text[position] === ',') {
        position += 1
        match(SPACE)
      }
    },
    isNext(character: string): boolean {
      const before = position
      match(SPACE)
      if (text[position] === character) return true
      position = before
      return false
    },
    /** The value after `=`: a token or a quoted string without its escapes. */
    value(): string | undefined {
      position += 1
      match(SPACE)
      return text[position] === '"' ? match(QUOTED)?.replaceAll(/\\(.)/g, '$1') : match(TOKEN)
    },
  }
}
