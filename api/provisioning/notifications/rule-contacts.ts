/**
 * The contacts of rules. A contact of a rule is a row beside those of subscriptions, so that its mails and webhook requests have the same limits,
 * attempts, order and dead letters, and the same confirmation of addresses. The addresses of members of the domain need none.
 */
import { findActingUser, isMailAddress } from '#api/identity/index.ts'
import type { AccessPolicy, FullDomains, UserPrincipal } from '#api/identity/index.ts'
import type { LetterSelection } from '#core/changelog/index.ts'
import { requireSelection } from '#core/changelog/index.ts'
import type { PageEnd } from '#core/cursor.ts'
import type { Database, Queryable, Transaction } from '#core/database/index.ts'
import { kindOf, refusedField } from '#core/errors/index.ts'
import type { PageRange } from '#core/page.ts'
import { LINK_LIFETIME_SECONDS } from './confirmation.ts'
import type { SendLink } from './links.ts'
import type { NotificationPayload } from './payload.ts'
import { discardDeadLetters, insertDeliveries, listDeadLetters, retryDeadLetters } from './repository.ts'
import type { DeliveryRecord } from './repository.ts'
import {
  findUsersOfAddresses,
  listRuleContactKeys,
  listRuleContacts,
  listRuleFailures,
  listUnasked,
  putRuleContacts,
  readContactRooms,
  removeOtherContacts,
  removeWaiting,
} from './rule-contacts-repository.ts'
import type { ContactRoom, RuleContact } from './rule-contacts-repository.ts'
import { hostOf } from './contact.ts'
import { requireWebhook } from './topic.ts'

/** Deliveries that may wait for one contact of a rule, as for one subscription. */
const MAX_WAITING = 1_000

type Wanted = { ruleKey: number; contact: string; payload: NotificationPayload }
type Refused = { ruleKey: number; reason: string; count: number }

export type RuleContactsDeps = {
  database: Database
  access: Pick<AccessPolicy, 'enter'>
  fullDomains: FullDomains
  sendLink: SendLink
  privateHosts: readonly string[]
  /** The key that signs the webhook requests of a contact. */
  signingSecretOf: (contactId: string) => string
  /** Called after deliveries were committed. */
  onRecorded: () => void
}

export class RuleContacts {
  readonly #deps: RuleContactsDeps

  constructor(deps: RuleContactsDeps) {
    this.#deps = deps
  }

  /** Throws `malformed`, which names `path`. */
  requireMail(address: string, path: string): void {
    if (!isMailAddress(address)) throw refusedField(path, 'must be an email address')
  }

  /** Throws `malformed`, which names `path`, unless it is a webhook that a subscription may have. */
  requireWebhook(url: string, path: string): void {
    requireWebhook(url, this.#deps.privateHosts, path)
  }

  /** The members of the domain among the owners of these verified addresses. */
  async membersOf(domainId: string, contacts: readonly string[]): Promise<ReadonlyMap<string, number>> {
    const { database, access } = this.#deps
    const addresses = contacts.filter((contact) => !contact.includes('://'))
    const members = new Map<string, number>()
    for (const [address, key] of await findUsersOfAddresses(database.db, addresses))
      if (await isMember(database.db, access, key, domainId)) members.set(address, key)
    return members
  }

  /** Stores the contacts of a rule in place of those that it had, with this user's rights. */
  async keep(
    tx: Transaction,
    rule: { key: number; id: string; userKey: number },
    contacts: readonly string[],
    members: ReadonlyMap<string, number>,
  ): Promise<void> {
    await removeOtherContacts(tx, rule.key, contacts)
    await putRuleContacts(
      tx,
      { ruleKey: rule.key, ruleId: rule.id, userKey: rule.userKey },
      contacts.map((contact) => ({ contact, memberKey: members.get(contact) })),
    )
  }

  /** Removes what waits to be sent, except what is being sent and dead letters. Returns how much it was. */
  async takeBack(tx: Transaction, ruleKey: number): Promise<number> {
    return await removeWaiting(tx, ruleKey)
  }

  /** Sends links to the addresses of the rule that must be confirmed, within the limits of links. */
  async ask(caller: UserPrincipal, ruleKey: number): Promise<void> {
    for (const contact of await listUnasked(this.#deps.database.db, ruleKey, LINK_LIFETIME_SECONDS))
      await this.#deps.sendLink(caller, contact)
  }

  /** Records deliveries in the transaction of what caused them. Returns what was refused, and the rules of the others. */
  async record(
    tx: Transaction,
    domainKey: number,
    wanted: readonly Wanted[],
  ): Promise<{ refused: Refused[]; recorded: number[] }> {
    if (wanted.length === 0) return { refused: [], recorded: [] }
    const ruleKeys = [...new Set(wanted.map(({ ruleKey }) => ruleKey))]
    const rooms = new Map(
      (await readContactRooms(tx, ruleKeys, MAX_WAITING)).map((room): [string, ContactRoom] => [nameOf(room), room]),
    )
    const isFull = this.#deps.fullDomains.has(domainKey)
    const refused = new Map<string, Refused>()
    const fitting: { ruleKey: number; subscriptionKey: number; payload: NotificationPayload }[] = []
    for (const { ruleKey, contact, payload } of wanted) {
      const room = rooms.get(nameOf({ ruleKey, contact }))
      const reason = refusalOf(contact, room, isFull)
      if (reason === undefined && room !== undefined) {
        room.waiting++
        fitting.push({ ruleKey, subscriptionKey: room.key, payload })
      } else {
        const known = refused.get(`${ruleKey} ${reason}`)
        if (known === undefined) refused.set(`${ruleKey} ${reason}`, { ruleKey, reason: reason ?? '', count: 1 })
        else known.count++
      }
    }
    if (fitting.length > 0)
      await insertDeliveries(
        tx,
        fitting.map(({ subscriptionKey, payload }) => ({ subscriptionKey, payload })),
      )
    return { refused: [...refused.values()], recorded: fitting.map(({ ruleKey }) => ruleKey) }
  }

  /** There are deliveries that were committed. */
  wake(): void {
    this.#deps.onRecorded()
  }

  async list(ruleKey: number): Promise<(RuleContact & { signingSecret: string | undefined })[]> {
    const { database, signingSecretOf } = this.#deps
    return (await listRuleContacts(database.db, ruleKey)).map((one) => ({
      ...one,
      signingSecret: one.contact.includes('://') ? signingSecretOf(one.id) : undefined,
    }))
  }

  /** The last failure of the contacts of each of these rules since their last delivery. */
  async failuresOf(
    ruleKeys: readonly number[],
  ): Promise<ReadonlyMap<number, { at: string; reason: string; count: number }>> {
    const rows = await listRuleFailures(this.#deps.database.db, ruleKeys)
    return new Map(
      rows.map(({ ruleKey, at, reason, count, contact }) => [
        ruleKey,
        // The path of a webhook is often a secret.
        { at, count, reason: `${contact.includes('://') ? hostOf(contact) : contact}: ${reason}` },
      ]),
    )
  }

  async deadLetters(
    ruleKey: number,
    range: PageRange,
  ): Promise<{ total: number; letters: DeliveryRecord[]; next: PageEnd }> {
    const { db } = this.#deps.database
    return await listDeadLetters(db, await listRuleContactKeys(db, ruleKey), range)
  }

  /** Throws `malformed`. Returns their number. */
  async retryDeadLetters(ruleKey: number, selection: LetterSelection): Promise<number> {
    const { db } = this.#deps.database
    const count = await retryDeadLetters(db, await listRuleContactKeys(db, ruleKey), requireSelection(selection))
    if (count > 0) this.wake()
    return count
  }

  async discardDeadLetters(ruleKey: number, selection: LetterSelection): Promise<number> {
    const { db } = this.#deps.database
    return await discardDeadLetters(db, await listRuleContactKeys(db, ruleKey), requireSelection(selection))
  }
}

const nameOf = ({ ruleKey, contact }: { ruleKey: number; contact: string }) => `${ruleKey} ${contact}`

/** Undefined: there is room. */
function refusalOf(contact: string, room: ContactRoom | undefined, isFull: boolean): string | undefined {
  const name = contact.includes('://') ? hostOf(contact) : contact
  if (room === undefined) return `${name} is no contact of the rule: the user of the rule was deleted`
  if (!room.isConfirmed)
    return `${name} has not confirmed that it wants notifications, and is not the verified address of a member: a mail was not sent`
  if (isFull) return `the quota queued_bytes of the domain is used up: a notification to ${name} was not sent`
  if (room.waiting >= MAX_WAITING) return `${MAX_WAITING} notifications wait for ${name}: one was not sent`
  return undefined
}

/** True while the user may enter the domain by a role: an administrator of the platform is no member of every domain. */
export async function isMember(
  db: Queryable,
  access: Pick<AccessPolicy, 'enter'>,
  userKey: number,
  domainId: string,
): Promise<boolean> {
  const user = await findActingUser(db, userKey)
  if (user === undefined) return false
  try {
    await access.enter({ ...user, isPlatformAdmin: false }, domainId)
    return true
  } catch (error) {
    if (kindOf(error) === 'forbidden' || kindOf(error) === 'not_found') return false
    throw error
  }
}
