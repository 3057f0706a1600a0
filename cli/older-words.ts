/**
 * Commands of the command lines of Mainflux, Magistrala, SuperMQ and Propeller whose words or order differ from those of `skein`, and
 * the words that they stand for. Commands that only have another number of trailing words need no row.
 */
import { isJsonWord } from './shared/resolve.ts'

/**
 * `<name>` is any word that is not JSON, `<JSON>` and `<JSON_…>` one that is, `<uuid>` an id in the form of a UUID. Words after the last
 * one of `from` (domain, token) are kept at the end.
 */
type Older = { from: string; to: string }

export const OLDER_WORDS: readonly Older[] = [
  // The older form would be read as something else: the first word would be the channel, the second the message.
  { from: 'messages send <domain_id> <topic> <JSON>', to: 'messages send <topic> <JSON> <domain_id>' },
  { from: 'certs get <uuid>', to: 'certs get entity <uuid>' },
  { from: 'certs get thing <client_id>', to: 'certs get client <client_id>' },
  { from: 'certs view <serial>', to: 'certs get <serial>' },
  { from: 'certs revoke-all <client_id>', to: 'certs revoke <client_id>' },
  { from: 'certs view-ca', to: 'certs ca' },
  { from: 'certs issue <client_id> <common_name> <JSON>', to: 'certs issue named <client_id> <common_name> <JSON>' },
  { from: 'invitations user get', to: 'invitations get all' },
  { from: 'invitations user accept <domain_id>', to: 'invitations accept <domain_id>' },
  { from: 'invitations user reject <domain_id>', to: 'invitations reject <domain_id>' },
  { from: 'invitations domain get <domain_id>', to: 'invitations get domain <domain_id>' },
  { from: 'invitations domain send <user_id> <domain_id> <role>', to: 'invitations send <user_id> <domain_id> <role>' },
  { from: 'invitations domain delete <user_id> <domain_id>', to: 'invitations delete <user_id> <domain_id>' },
  { from: 'users things <user_id>', to: 'users clients <user_id>' },
  { from: 'domains unassign user <relation> <JSON>', to: 'domains unassign users <relation> <JSON>' },
  { from: 'bootstrap profiles', to: 'profiles' },
  { from: 'bootstrap enrollments assign-profile <id> <profile_id>', to: 'profiles assign <profile_id> <id>' },
  { from: 'bootstrap enrollments get-bindings <id>', to: 'profiles bindings <id>' },
  { from: 'bootstrap enrollments refresh-bindings <id>', to: 'profiles refresh <id>' },
  { from: 'bootstrap enrollments bind <id> <JSON>', to: 'profiles bind <id> <JSON>' },
]

const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/i

/** The words of `skein` for these words; unchanged where no row fits. */
export function newerWords(words: readonly string[]): string[] {
  for (const { from, to } of OLDER_WORDS) {
    const pattern = from.split(' ')
    const values = valuesOf(pattern, words)
    if (values === undefined) continue
    return [...to.split(' ').map((word) => values.get(word) ?? word), ...words.slice(pattern.length)]
  }
  return [...words]
}

/** The words of each placeholder; undefined where the pattern does not fit. */
function valuesOf(pattern: readonly string[], words: readonly string[]): Map<string, string> | undefined {
  const values = new Map<string, string>()
  for (const [index, part] of pattern.entries()) {
    const word = words[index]
    if (word === undefined) return undefined
    if (!part.startsWith('<')) {
      if (part !== word) return undefined
      continue
    }
    if (part.startsWith('<JSON') !== isJsonWord(word)) return undefined
    if (part === '<uuid>' && !UUID.test(word)) return undefined
    values.set(part, word)
  }
  return values
}
