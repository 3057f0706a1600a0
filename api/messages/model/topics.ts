/**
 * Message paths (contract sections 7.1 and 7.3). A stream is named by domain, channel and subtopic. Protocols separate the elements of
 * a subtopic with `/` or `.`; internally they are joined by `.`.
 */
import { ServiceError } from '#core/errors/index.ts'

/** The maximum length of a subtopic, because subtopics are keys of the series dictionary. */
export const MAX_SUBTOPIC_LENGTH = 1024

/** Matches exactly one element; MQTT writes `+`. */
const ANY_ELEMENT = '*'
/** Matches any number of elements, including none, as the last element; MQTT writes `#`. */
const ANY_REST = '>'

export type MessagePath = {
  /** Id or alias of the domain; undefined in the older form of the path. */
  domain: string | undefined
  channel: string
  /** The rest of the path after the channel, without the leading slash. */
  rest: string
}

const WITH_DOMAIN = /^\/?m\/([^/]+)\/c\/([^/]+)(?:\/(.*))?$/s
const WITHOUT_DOMAIN = /^\/?channels\/([^/]+)\/messages(?:\/(.*))?$/s

/** Reads `m/<domain>/c/<channel>[/…]` and `channels/<channel>/messages[/…]`; undefined for any other text. */
export function parseMessagePath(path: string): MessagePath | undefined {
  const scoped = WITH_DOMAIN.exec(path)
  if (scoped !== null) return { domain: scoped[1], channel: scoped[2] as string, rest: scoped[3] ?? '' }
  const unscoped = WITHOUT_DOMAIN.exec(path)
  if (unscoped !== null) return { domain: undefined, channel: unscoped[1] as string, rest: unscoped[2] ?? '' }
  return undefined
}

/**
 * The canonical subtopic that a message is published under: elements joined by `.`, empty ones dropped.
 * Throws `malformed` for wildcards, white space and characters that cannot be stored.
 */
export function parseSubtopic(text: string): string {
  const elements = elementsOf(text)
  if (elements.some((element) => /[*>+#]/.test(element))) throw refusal('must not contain the wildcards *, >, + and #')
  return elements.join('.')
}

/**
 * The canonical subtopic filter of a subscription; `+` and `#` become `*` and `>`. A wildcard stands for whole
 * elements, `>` is the last. Throws `malformed`.
 */
export function parseSubtopicFilter(text: string): string {
  const elements = elementsOf(text).map((element) =>
    element === '+' ? ANY_ELEMENT : element === '#' ? ANY_REST : element,
  )
  elements.forEach((element, index) => {
    if (element === ANY_ELEMENT) return
    if (element === ANY_REST) {
      if (index !== elements.length - 1) throw refusal('must use the wildcards # and > only as the last element')
    } else if (/[*>+#]/.test(element)) throw refusal('must use wildcards only as whole elements')
  })
  return elements.join('.')
}

/** True when the filter of `parseSubtopicFilter` matches the subtopic of `parseSubtopic`. */
export function matchesSubtopic(filter: string, subtopic: string): boolean {
  return createSubtopicMatcher(filter)(subtopic)
}

/** Returns `matchesSubtopic` for many subtopics: the filter is split once. */
export function createSubtopicMatcher(filter: string): (subtopic: string) => boolean {
  let wanted: string[] | undefined
  return (subtopic) => {
    if (filter === subtopic) return true
    wanted ??= split(filter)
    const given = split(subtopic)
    for (const [index, element] of wanted.entries()) {
      // MQTT 3.1.1 section 4.7.1.2: `#` matches the parent level too.
      if (element === ANY_REST) return true
      if (index >= given.length || (element !== ANY_ELEMENT && element !== given[index])) return false
    }
    return wanted.length === given.length
  }
}

function elementsOf(text: string): string[] {
  if (text.length > MAX_SUBTOPIC_LENGTH) throw refusal(`must not exceed ${MAX_SUBTOPIC_LENGTH} characters`)
  // oxlint-disable-next-line no-control-regex -- control characters are what is refused
  if (/[\s\u0000-\u001f\u007f]/.test(text)) throw refusal('must not contain white space or control characters')
  if (!text.isWellFormed()) throw refusal('must be well-formed text')
  return split(text)
}

function split(text: string): string[] {
  return text === '' ? [] : text.split(/[/.]/).filter((element) => element !== '')
}

function refusal(rule: string): ServiceError {
  return new ServiceError('malformed', `the subtopic ${rule}`, { details: [{ path: 'subtopic', message: rule }] })
}
