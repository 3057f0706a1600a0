/** Parses the topic and the contact of a subscription (decision 57). Pure. */
import { isMailAddress } from '#api/identity/index.ts'
import { parseMessagePath, parseSubtopicFilter } from '#api/messages/index.ts'
import { refusedField } from '#core/errors/index.ts'
import { isId } from '#core/ids.ts'
import { isPublicAddress } from '#core/public-address.ts'
import { isIP } from 'node:net'

export type Topic = { domain: string | undefined; channel: string; filter: string }

/** Parses a message path, or `[channels.]<channel>[.<subtopic>]`. Throws `malformed`. */
export function parseTopic(text: string): Topic {
  const path = parseMessagePath(text)
  if (path !== undefined) return { domain: path.domain, channel: path.channel, filter: parseSubtopicFilter(path.rest) }
  const [first = '', second = ''] = text.split(/[./]/, 2)
  // The oldest clients send `channels.<id>`.
  const own = first === 'channels' && isId(second) ? text.slice('channels.'.length) : text
  const match = /^([^./\s]+)(?:[./](.*))?$/s.exec(own)
  if (match === null) throw refusedField('/topic', 'must be a message path or <channel>[.<subtopic>]')
  return { domain: undefined, channel: match[1] as string, filter: parseSubtopicFilter(match[2] ?? '') }
}

const WEBHOOK = 'a public https URL without user and password; SKEIN_WEBHOOK_HOSTS permits other hosts'

/** Throws `malformed` unless it is an email address or a permitted webhook URL. */
export function requireContact(contact: string, privateHosts: readonly string[]): void {
  if (!isMailAddress(contact) && !isWebhook(contact, privateHosts))
    throw refusedField('/contact', `must be an email address or ${WEBHOOK}`)
}

/** Throws `malformed`, which names `path`, unless it is a permitted webhook URL. */
export function requireWebhook(url: string, privateHosts: readonly string[], path: string): void {
  if (!isWebhook(url, privateHosts)) throw refusedField(path, `must be ${WEBHOOK}`)
}

const isWebhook = (text: string, privateHosts: readonly string[]) =>
  URL.canParse(text) && mayPostTo(new URL(text), privateHosts)

export const isListed = (url: URL, privateHosts: readonly string[]) =>
  privateHosts.includes(url.hostname) || privateHosts.includes(url.host)

/** Checks the URL itself. Host names are checked again after they are resolved. */
function mayPostTo(url: URL, privateHosts: readonly string[]): boolean {
  if (url.username !== '' || url.password !== '') return false
  if (isListed(url, privateHosts)) return url.protocol === 'https:' || url.protocol === 'http:'
  const host = url.hostname.replaceAll(/[[\]]/g, '')
  return url.protocol === 'https:' && host !== 'localhost' && (isIP(host) === 0 || isPublicAddress(host))
}
