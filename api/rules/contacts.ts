/** Mails and webhook requests of rules, as the room that delivers notifications offers them. */
import type { LetterSelection } from '#core/changelog/index.ts'
import type { UserPrincipal } from '#api/identity/index.ts'
import type { PageEnd } from '#core/cursor.ts'
import type { Transaction } from '#core/database/index.ts'
import type { PageRange } from '#core/page.ts'
import type { RuleAction, RuleDefinition } from './schema.ts'

export type ContactFailure = { at: string; reason: string; count: number }

export type RuleContact = {
  id: string
  contact: string
  isConfirmed: boolean
  pending: number
  deadLetters: number
  lastError: ContactFailure | null
  /** The key that signs the requests of a webhook; undefined: it is no webhook. */
  signingSecret: string | undefined
}

export type RuleLetter = {
  id: string
  contact: string
  payload: Readonly<Record<string, string | boolean>>
  attempts: number
  lastError: string | null
  createdAt: string
  givenUpAt: string
}

export type NewNotification = {
  ruleKey: number
  contact: string
  payload: Readonly<Record<string, string | boolean>>
}

export type Contacts = {
  /** Both throw `malformed`, which names `path`. */
  requireMail(address: string, path: string): void
  requireWebhook(url: string, path: string): void
  /** Members of the domain by their verified addresses, among these. */
  membersOf(domainId: string, contacts: readonly string[]): Promise<ReadonlyMap<string, number>>
  keep(
    tx: Transaction,
    rule: { key: number; id: string; userKey: number },
    contacts: readonly string[],
    members: ReadonlyMap<string, number>,
  ): Promise<void>
  /** Removes what waits to be sent; dead letters stay. Returns how much it was. */
  takeBack(tx: Transaction, ruleKey: number): Promise<number>
  /** Sends links to addresses that must be confirmed. */
  ask(caller: UserPrincipal, ruleKey: number): Promise<void>
  record(
    tx: Transaction,
    domainKey: number,
    wanted: readonly NewNotification[],
  ): Promise<{ refused: { ruleKey: number; reason: string; count: number }[]; recorded: number[] }>
  wake(): void
  list(ruleKey: number): Promise<RuleContact[]>
  failuresOf(ruleKeys: readonly number[]): Promise<ReadonlyMap<number, ContactFailure>>
  deadLetters(ruleKey: number, range: PageRange): Promise<{ total: number; letters: RuleLetter[]; next: PageEnd }>
  retryDeadLetters(ruleKey: number, selection: LetterSelection): Promise<number>
  discardDeadLetters(ruleKey: number, selection: LetterSelection): Promise<number>
}

const contactsOfAction = (action: RuleAction): readonly string[] =>
  action.type === 'mail' ? action.to : action.type === 'webhook' ? [action.url] : []

/** All contacts of a rule, each once. */
export const contactsOf = ({ actions = [] }: RuleDefinition): string[] => [
  ...new Set(actions.flatMap(contactsOfAction)),
]

/** Throws `malformed` for what is no address, or no webhook that may be called. */
export function requireContacts(contacts: Contacts, { actions = [] }: RuleDefinition): void {
  for (const [index, action] of actions.entries()) {
    if (action.type === 'webhook') contacts.requireWebhook(action.url, `/actions/${index}/url`)
    if (action.type !== 'mail') continue
    for (const [place, address] of action.to.entries()) contacts.requireMail(address, `/actions/${index}/to/${place}`)
  }
}
