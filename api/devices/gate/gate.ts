/**
 * Who may send and receive on a channel, for every protocol. Decisions are kept in memory and forgotten as soon as a
 * client, channel, connection or domain behind them changes, so that a message costs one look-up (mechanisms section 4).
 */
import { LRUCache } from 'lru-cache'
import { ANY_CHANGE, CONNECTION_BITS } from '#api/identity/index.ts'
import type { AccessPolicy, ConnectionType, Journal, UserPrincipal } from '#api/identity/index.ts'
import type { Database } from '#core/database/index.ts'
import { ServiceError, kindOf } from '#core/errors/index.ts'
import type { FactCache, LoadedFact } from '#core/fact-cache.ts'
import { createFactCache } from '#core/fact-cache.ts'
import { isId } from '#core/ids.ts'
import type { Keyring } from '#core/keyring/index.ts'
import { secretMac } from '../secrets/index.ts'
import type { Candidate, ChannelFacts, ChannelPathQuery } from './repository.ts'
import { findCandidates, findChannels, findDomainByRoute } from './repository.ts'

/** What a message came with. `clientId` stands beside the secret in Basic authentication and MQTT. */
export type MessageCredentials =
  | { readonly kind: 'client'; readonly secret: string; readonly clientId?: string | undefined }
  | { readonly kind: 'user'; readonly principal: UserPrincipal }
  /**
   * A client that proved who it is before: an open session, its will, a certificate. `certificate` is the fingerprint in hex
   * of the one that it proved it with: without that one being good it counts for nothing.
   */
  | { readonly kind: 'device'; readonly clientKey: number; readonly certificate?: string | undefined }

export type DeviceCredentials = Exclude<MessageCredentials, { kind: 'user' }>

/** A channel as a path names it: by id or route; without a domain on the older paths. */
export type ChannelPath = { readonly domain?: string | undefined; readonly channel: string }

/** Canonical ends of an allowed message. */
export type MessageAccess = {
  readonly domainKey: number
  readonly domainId: string
  readonly channelKey: number
  readonly channelId: string
  /** Null when a user sends. */
  readonly publisherKey: number | null
  readonly publisherId: string | null
  /** Days that messages of the channel are kept; null: for ever. */
  readonly retentionDays: number | null
}

/** A client that proved who it is. */
export type IdentifiedClient = { readonly domainId: string; readonly clientId: string }

/** Such a client with its keys. */
export type IdentifiedDevice = IdentifiedClient & { readonly domainKey: number; readonly clientKey: number }

/** Pairs of a device and a channel that are kept, with both directions; some 500 bytes each. */
const MAX_DECISIONS = 100_000
/** A secret that came from outside and is shorter counts only together with the client id (decision 31c). */
const MIN_LONE_SECRET_CHARS = 16
/** A device whose path fits several domains tries again and again; each of them is told so often. */
const AMBIGUITY_REPORT_MS = 60_000
const MAX_REPORTED = 10_000

type Refusal = 'unauthenticated' | 'forbidden'
type Decision = { access: MessageAccess } | { refusal: Refusal }

/** `domain` is that of the path: a secret counts in its own domain alone, and which of the two is wrong is told to nobody. */
const REFUSALS: Record<Refusal, (domain?: string) => ServiceError> = {
  unauthenticated: (domain) =>
    new ServiceError(
      'unauthenticated',
      `failed to perform authentication: ${domain === undefined ? 'wrong or missing client secret' : 'wrong domain or secret'}`,
    ),
  forbidden: () => new ServiceError('forbidden', 'failed to perform authorization: not connected to this channel'),
}

const domainQuery = (domain: string | undefined) => ({
  domainId: domain !== undefined && isId(domain) ? domain : undefined,
  domainRoute: domain !== undefined && !isId(domain) ? domain : undefined,
})

const NO_CHANNEL = { channelId: undefined, channelRoute: undefined } as const

const asPath = ({ domain, channel }: ChannelPath): ChannelPathQuery => ({
  ...domainQuery(domain),
  channelId: isId(channel) ? channel : undefined,
  channelRoute: isId(channel) ? undefined : channel,
})

const keyOf = (credentials: DeviceCredentials, path: ChannelPath, type: ConnectionType) =>
  `${type}\n${path.domain ?? ''}\n${path.channel}\n${credentialsKey(credentials)}`

export class MessageGate {
  readonly #database: Database
  readonly #access: AccessPolicy
  readonly #journal: Journal
  readonly #keyring: Keyring
  readonly #decisions: FactCache<Decision>
  readonly #identities: FactCache<readonly IdentifiedDevice[]>
  readonly #channels: FactCache<readonly ChannelFacts[]>
  readonly #reported = new LRUCache<string, true>({ max: MAX_REPORTED, ttl: AMBIGUITY_REPORT_MS })

  constructor(deps: { database: Database; access: AccessPolicy; journal: Journal; keyring: Keyring }) {
    this.#database = deps.database
    this.#access = deps.access
    this.#journal = deps.journal
    this.#keyring = deps.keyring
    const kept = { maxEntries: MAX_DECISIONS, isFresh: deps.journal.isFresh }
    this.#decisions = createFactCache(kept)
    this.#identities = createFactCache(kept)
    this.#channels = createFactCache(kept)
  }

  /**
   * The one enabled client of an enabled domain that has this secret; without a domain in all of them (decision 31c).
   * Throws `unauthenticated` for none and for several alike.
   */
  async identify(secret: string, domain?: string): Promise<IdentifiedClient> {
    const query = { ...domainQuery(domain), ...NO_CHANNEL, isInDomain: domain !== undefined }
    const enabled = (await this.#candidatesFor({ kind: 'client', secret }, query)).filter(isEnabled)
    if (enabled.length > 1) await this.#reportAmbiguity(enabled)
    const [only, ...more] = enabled
    if (only === undefined || more.length > 0) throw REFUSALS.unauthenticated(domain)
    return { domainId: only.domainId, clientId: only.clientId }
  }

  /**
   * Every enabled client of an enabled domain that these credentials fit: more than one where several domains use the same
   * secret (decision 31c). Throws `unauthenticated` for none.
   */
  async identifyAll(credentials: DeviceCredentials): Promise<readonly IdentifiedDevice[]> {
    const found = await this.#identities.get(credentialsKey(credentials), async () => {
      const query = { ...domainQuery(undefined), ...NO_CHANNEL, isInDomain: false }
      const enabled = (await this.#candidatesFor(credentials, query)).filter(isEnabled)
      const value = enabled.map(({ domainKey, domainId, clientKey, clientId }) => ({
        domainKey,
        domainId,
        clientKey,
        clientId,
      }))
      // Another client may come to fit whose key is not known now.
      return { value, dependsOn: [ANY_CHANGE] }
    })
    if (found.length === 0) throw REFUSALS.unauthenticated()
    return found
  }

  /**
   * Throws `unauthenticated` for wrong credentials or a disabled client; `forbidden` for an unknown, foreign, disabled or
   * unconnected channel alike; for a user who subscribes `forbidden` when the domain of the path is not open to him, in it and
   * without one `not_found` when he may not read the channel; `conflict` when a path without a domain fits several.
   */
  async authorize(credentials: MessageCredentials, path: ChannelPath, type: ConnectionType): Promise<MessageAccess> {
    if (credentials.kind === 'user') return await this.#authorizeUser(credentials.principal, path, type)
    const decision = await this.#decisions.get(keyOf(credentials, path, type), () =>
      this.#decide(credentials, path, type),
    )
    if ('refusal' in decision) throw REFUSALS[decision.refusal](path.domain)
    return decision.access
  }

  /** The same from memory, without waiting; undefined: call `authorize`. */
  authorizeNow(credentials: MessageCredentials, path: ChannelPath, type: ConnectionType): MessageAccess | undefined {
    if (credentials.kind === 'user') return undefined
    const decision = this.#decisions.peek(keyOf(credentials, path, type))
    return decision !== undefined && 'access' in decision ? decision.access : undefined
  }

  /** The ids of a path that may name its domain and its channel by routes; what names nothing stays as it is. Decides nothing. */
  async idsOf(path: { domain: string; channel: string }): Promise<{ domainId: string; channelId: string }> {
    const [found] = await findChannels(this.#database.db, asPath(path))
    if (found !== undefined) return { domainId: found.domainId, channelId: found.id }
    return { domainId: (await this.#domainIdOf(path.domain)) ?? path.domain, channelId: path.channel }
  }

  forget(entityKeys: readonly number[]): void {
    this.#decisions.forget(entityKeys)
    this.#identities.forget(entityKeys)
    this.#channels.forget(entityKeys)
  }

  clear(): void {
    this.#decisions.clear()
    this.#identities.clear()
    this.#channels.clear()
  }

  /** The clients that the credentials fit; none where the secret is too short to count alone. */
  async #candidatesFor(
    credentials: DeviceCredentials,
    path: ChannelPathQuery & { isInDomain: boolean },
  ): Promise<Candidate[]> {
    const { isInDomain, ...query } = path
    if (credentials.kind === 'device')
      return await findCandidates(this.#database.db, {
        ...query,
        client: { key: credentials.clientKey, certificate: credentials.certificate },
      })
    const { secret, clientId } = credentials
    if (clientId !== undefined && !isId(clientId)) return []
    if (!isInDomain && clientId === undefined && secret.length < MIN_LONE_SECRET_CHARS) return []
    return await findCandidates(this.#database.db, {
      ...query,
      client: { secretMac: secretMac(this.#keyring, secret), id: clientId },
    })
  }

  async #decide(
    credentials: DeviceCredentials,
    path: ChannelPath,
    type: ConnectionType,
  ): Promise<LoadedFact<Decision>> {
    const refused = (refusal: Refusal): LoadedFact<Decision> => ({ value: { refusal }, dependsOn: [ANY_CHANGE] })
    const found = await this.#candidatesFor(credentials, { ...asPath(path), isInDomain: path.domain !== undefined })
    const candidates = found.filter((one) => one.clientStatus === 'enabled')
    if (candidates.length === 0) return refused('unauthenticated')
    const allowed = candidates.filter((one) => isConnected(one, type))
    const [only, ...more] = allowed
    if (only === undefined) return refused('forbidden')
    if (more.length > 0) {
      await this.#reportAmbiguity(allowed)
      return refused('unauthenticated')
    }
    const value = {
      access: {
        domainKey: only.domainKey,
        domainId: only.domainId,
        channelKey: only.channelKey as number,
        channelId: only.channelId as string,
        publisherKey: only.clientKey,
        publisherId: only.clientId,
        retentionDays: only.retentionDays,
      },
    }
    return { value, dependsOn: dependenciesOf(path, [only.domainKey, only.clientKey, only.channelKey as number]) }
  }

  /** The same external secret and channel id in several domains: each of them learns that its device is shut out. */
  async #reportAmbiguity(candidates: readonly Candidate[]): Promise<void> {
    const name = candidates.map((one) => one.clientKey).join(' ')
    if (this.#reported.has(name)) return
    this.#reported.set(name, true)
    await this.#journal.change('system', async (_tx, record) => {
      for (const one of candidates) {
        record({
          operation: 'client.ambiguous',
          domainKey: one.domainKey,
          entityKeys: [one.clientKey],
          attributes: { id: one.clientId, channel_id: one.channelId },
        })
      }
    })
  }

  async #domainIdOf(domain: string) {
    return isId(domain) ? domain : await findDomainByRoute(this.#database.db, domain)
  }

  async #authorizeUser(principal: UserPrincipal, path: ChannelPath, type: ConnectionType): Promise<MessageAccess> {
    // A token that lacks the scope is told so, as it is everywhere; what it may not see is refused alike (contract section 6).
    const refuse = () =>
      type === 'publish' || principal.scope !== undefined
        ? REFUSALS.forbidden()
        : new ServiceError('not_found', 'entity not found')
    const found = await this.#channels.get(`${path.domain ?? ''}\n${path.channel}`, async () => {
      const facts = await findChannels(this.#database.db, asPath(path))
      if (facts.length === 0) return { value: facts, dependsOn: [ANY_CHANGE] }
      const keys = facts.flatMap((one) => [one.domainKey, one.key])
      return { value: facts, dependsOn: dependenciesOf(path, keys) }
    })
    // No such domain and one that is not open to him are the same refusal (decision 45).
    if (type === 'subscribe' && path.domain !== undefined)
      await this.#access.enter(principal, found[0]?.domainId ?? (await this.#domainIdOf(path.domain)) ?? '')
    const allowed: ChannelFacts[] = []
    let isReadable = false
    for (const channel of found) {
      const domain = await this.#access.enter(principal, channel.domainId).catch((error: unknown) => {
        if (kindOf(error) === 'forbidden') return undefined
        throw error
      })
      const actions = await domain?.actionsOn({
        type: 'channel',
        key: channel.key,
        parentGroupKey: channel.parentGroupKey,
      })
      if (actions?.has('read') === true) isReadable = true
      if (actions?.has(type) === true && channel.status === 'enabled' && channel.domainStatus === 'enabled')
        allowed.push(channel)
    }
    const [only, ...more] = allowed
    if (only === undefined) throw isReadable ? REFUSALS.forbidden() : refuse()
    if (more.length > 0)
      throw new ServiceError(
        'conflict',
        'the channel id exists in several domains: use the path /m/<domain>/c/<channel>',
      )
    return {
      domainKey: only.domainKey,
      domainId: only.domainId,
      channelKey: only.key,
      channelId: only.id,
      publisherKey: null,
      publisherId: null,
      retentionDays: only.retentionDays,
    }
  }
}

/**
 * A path without a domain is answered by what fits in any domain, and what comes to fit later has a key that is not
 * known now: such an answer holds until anything changes.
 */
function dependenciesOf({ domain }: ChannelPath, keys: readonly number[]): readonly number[] {
  return domain === undefined ? [...keys, ANY_CHANGE] : keys
}

function credentialsKey(credentials: DeviceCredentials): string {
  if (credentials.kind === 'device') return `${credentials.clientKey} ${credentials.certificate ?? ''}`
  return `${credentials.clientId ?? ''}\n${credentials.secret}`
}

function isEnabled({ clientStatus, domainStatus }: Candidate): boolean {
  return clientStatus === 'enabled' && domainStatus === 'enabled'
}

function isConnected(one: Candidate, type: ConnectionType): boolean {
  return one.domainStatus === 'enabled' && one.channelStatus === 'enabled' && (one.types & CONNECTION_BITS[type]) !== 0
}
