/**
 * The gate: authorization of devices for every protocol. It decides which client may publish to and subscribe on which
 * channel. Decisions are cached in memory and invalidated as soon as a client, channel, connection or domain that they
 * depend on changes, so that a message costs one look-up (mechanisms section 4).
 */
import { BoundedCache } from '#core/bounded-cache.ts'
import { ANY_CHANGE, CONNECTION_BITS } from '#api/identity/index.ts'
import type { AccessPolicy, ConnectionType, Journal, UserPrincipal } from '#api/identity/index.ts'
import type { Database } from '#core/database/index.ts'
import { ServiceError, kindOf } from '#core/errors/index.ts'
import type { FactCache, LoadedFact } from '#core/fact-cache.ts'
import { createFactCache } from '#core/fact-cache.ts'
import { isId } from '#core/ids.ts'
import type { Keyring } from '#core/keyring/index.ts'
import type { Logger } from '#core/logging/index.ts'
import { secretMac } from '../secrets/index.ts'
import type { Candidate, ChannelFacts, ChannelPathQuery } from './repository.ts'
import { createLookups } from './lookups.ts'
import type { FindCandidates } from './lookups.ts'
import { findChannels, findDomainByRoute } from './repository.ts'

/** Credentials of a message. `clientId` comes with the secret in Basic authentication and MQTT. */
export type MessageCredentials =
  | { readonly kind: 'client'; readonly secret: string; readonly clientId?: string | undefined }
  | { readonly kind: 'user'; readonly principal: UserPrincipal }
  /**
   * A client that was authenticated before: an open session, its will, a certificate. `certificate` is the fingerprint,
   * in hex, of the certificate that authenticated it. When the certificate is no longer valid, the credentials are
   * rejected.
   */
  | { readonly kind: 'device'; readonly clientKey: number; readonly certificate?: string | undefined }

export type DeviceCredentials = Exclude<MessageCredentials, { kind: 'user' }>

/** A channel in a path: by id or route. Legacy paths have no domain. */
export type ChannelPath = { readonly domain?: string | undefined; readonly channel: string }

/** Ids and keys of the domain, the channel and the publisher of an authorized message. */
export type ChannelAccess = {
  readonly domainKey: number
  readonly domainId: string
  readonly channelKey: number
  readonly channelId: string
  /** Null when a user publishes. */
  readonly publisherKey: number | null
  readonly publisherId: string | null
  /** Days that messages of the channel are kept. Null keeps them forever. */
  readonly retentionDays: number | null
}

/** An authenticated client. */
export type IdentifiedClient = { readonly domainId: string; readonly clientId: string }

/** An authenticated client with its keys. */
export type IdentifiedDevice = IdentifiedClient & { readonly domainKey: number; readonly clientKey: number }

/** Maximum number of cached decisions, one for each device, channel and direction; some 500 bytes each. */
const MAX_DECISIONS = 100_000
/** A shorter secret that the caller chose is accepted only together with the client id (decision 31c). */
const MIN_LONE_SECRET_CHARS = 16
/** A device whose path matches several domains retries continuously. Each ambiguity is reported once in this time. */
const AMBIGUITY_REPORT_MS = 60_000
const MAX_REPORTED = 10_000

type Refusal = 'unauthenticated' | 'forbidden'
type Decision = { access: ChannelAccess } | { refusal: Refusal }

/**
 * `domain` is the domain of the path. A secret is valid in its own domain only. The message does not reveal whether the
 * domain or the secret is wrong.
 */
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

/** Whether these credentials may do this on this channel: the key of a decision. */
export type AccessQuestion = string & { readonly __question: never }

const keyOf = (credentials: DeviceCredentials, path: ChannelPath, type: ConnectionType) =>
  `${type}\n${path.domain ?? ''}\n${path.channel}\n${credentialsKey(credentials)}` as AccessQuestion

export class MessageGate {
  readonly #database: Database
  readonly #access: AccessPolicy
  readonly #journal: Journal
  readonly #keyring: Keyring
  readonly #findCandidates: FindCandidates
  readonly #decisions: FactCache<Decision>
  readonly #identities: FactCache<readonly IdentifiedDevice[]>
  /** Devices by their credentials and the domain that they name. */
  readonly #inDomains: FactCache<IdentifiedDevice | undefined>
  readonly #channels: FactCache<readonly ChannelFacts[]>
  readonly #reported = new BoundedCache<string, true>({ maxEntries: MAX_REPORTED, ttl: AMBIGUITY_REPORT_MS })

  constructor(deps: { database: Database; access: AccessPolicy; journal: Journal; keyring: Keyring; logger: Logger }) {
    this.#database = deps.database
    this.#access = deps.access
    this.#journal = deps.journal
    this.#keyring = deps.keyring
    this.#findCandidates = createLookups(deps.database.db, deps.logger)
    const kept = { maxEntries: MAX_DECISIONS, isFresh: deps.journal.isFresh }
    this.#decisions = createFactCache(kept)
    this.#identities = createFactCache(kept)
    this.#inDomains = createFactCache(kept)
    this.#channels = createFactCache(kept)
  }

  /**
   * Returns the enabled client of an enabled domain with this secret. Without a domain it searches all of them
   * (decision 31c). Throws the same `unauthenticated` for none and for several.
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
   * Returns every enabled client of an enabled domain that matches these credentials. Several match when several
   * domains use the same secret (decision 31c). Throws `unauthenticated` for none.
   */
  async identifyAll(credentials: DeviceCredentials): Promise<readonly IdentifiedDevice[]> {
    const found = await this.#identities.get(credentialsKey(credentials), async () => {
      const query = { ...domainQuery(undefined), ...NO_CHANNEL, isInDomain: false }
      const enabled = (await this.#candidatesFor(credentials, query)).filter(isEnabled)
      const value = enabled.map(asDevice)
      // A client that is created later can match too, and its key is not known yet.
      return { value, dependsOn: [ANY_CHANGE] }
    })
    if (found.length === 0) throw REFUSALS.unauthenticated()
    return found
  }

  /**
   * Returns the enabled client with these credentials in this enabled domain, an id or a route. Throws the same
   * `unauthenticated` for wrong credentials, an unknown domain and a client of another domain.
   */
  async identifyIn(credentials: DeviceCredentials, domain: string): Promise<IdentifiedDevice> {
    const found = await this.#inDomains.get(inDomainKey(credentials, domain), async () => {
      const query = { ...domainQuery(domain), ...NO_CHANNEL, isInDomain: true }
      const [only, ...more] = (await this.#candidatesFor(credentials, query)).filter(isEnabled)
      if (only === undefined || more.length > 0) return { value: undefined, dependsOn: [ANY_CHANGE] }
      return { value: asDevice(only), dependsOn: [only.domainKey, only.clientKey] }
    })
    if (found === undefined) throw REFUSALS.unauthenticated(domain)
    return found
  }

  /** Returns a cached answer of `identifyIn` without waiting. Undefined means that the caller must call it. */
  identifyInNow(credentials: DeviceCredentials, domain: string): IdentifiedDevice | undefined {
    return this.#inDomains.peek(inDomainKey(credentials, domain))
  }

  /**
   * Throws `unauthenticated` for wrong credentials or a disabled client. Throws the same `forbidden` for a channel that
   * is unknown, of another domain, disabled or not connected. For a user who subscribes: `forbidden` without access to
   * the domain of the path, `not_found` without `read` on the channel. Throws `conflict` when a path without a domain
   * matches several domains.
   */
  async authorize(credentials: MessageCredentials, path: ChannelPath, type: ConnectionType): Promise<ChannelAccess> {
    if (credentials.kind === 'user') return await this.#authorizeUser(credentials.principal, path, type)
    const decision = await this.#decisions.get(keyOf(credentials, path, type), () =>
      this.#decide(credentials, path, type),
    )
    if ('refusal' in decision) throw REFUSALS[decision.refusal](path.domain)
    return decision.access
  }

  /** Returns a cached decision without waiting. Undefined means that the caller must call `authorize`. */
  authorizeNow(credentials: MessageCredentials, path: ChannelPath, type: ConnectionType): ChannelAccess | undefined {
    return credentials.kind === 'user' ? undefined : this.answerNow(keyOf(credentials, path, type))
  }

  /** Returns a question that a caller can ask again for each message: it is made and hashed once. */
  questionOf(credentials: DeviceCredentials, path: ChannelPath, type: ConnectionType): AccessQuestion {
    return keyOf(credentials, path, type)
  }

  /** Answers a question as `authorizeNow` does. */
  answerNow(question: AccessQuestion): ChannelAccess | undefined {
    const decision = this.#decisions.peek(question)
    return decision !== undefined && 'access' in decision ? decision.access : undefined
  }

  /** Resolves routes of a domain and a channel to ids. Unknown names are returned unchanged. It authorizes nothing. */
  async idsOf(path: { domain: string; channel: string }): Promise<{ domainId: string; channelId: string }> {
    const [found] = await findChannels(this.#database.db, asPath(path))
    if (found !== undefined) return { domainId: found.domainId, channelId: found.id }
    return { domainId: (await this.#domainIdOf(path.domain)) ?? path.domain, channelId: path.channel }
  }

  invalidate(entityKeys: readonly number[]): void {
    this.#decisions.invalidate(entityKeys)
    this.#identities.invalidate(entityKeys)
    this.#inDomains.invalidate(entityKeys)
    this.#channels.invalidate(entityKeys)
  }

  invalidateAll(): void {
    this.#decisions.invalidateAll()
    this.#identities.invalidateAll()
    this.#inDomains.invalidateAll()
    this.#channels.invalidateAll()
  }

  /**
   * Returns the clients that match the credentials; none when the secret is too short to be accepted without a client
   * id.
   */
  async #candidatesFor(
    credentials: DeviceCredentials,
    path: ChannelPathQuery & { isInDomain: boolean },
  ): Promise<readonly Candidate[]> {
    const { isInDomain, ...query } = path
    if (credentials.kind === 'device')
      return await this.#findCandidates({
        ...query,
        client: { key: credentials.clientKey, certificate: credentials.certificate },
      })
    const { secret, clientId } = credentials
    if (clientId !== undefined && !isId(clientId)) return []
    if (!isInDomain && clientId === undefined && secret.length < MIN_LONE_SECRET_CHARS) return []
    return await this.#findCandidates({
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

  /**
   * Several domains use the same secret and channel id. The journal of each domain records that its device is rejected.
   */
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

  async #authorizeUser(principal: UserPrincipal, path: ChannelPath, type: ConnectionType): Promise<ChannelAccess> {
    // A token without the required scope gets `forbidden`, here as everywhere. It gets the same error for a channel
    // that it may not see (contract section 6).
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
    // An unknown domain and a domain without access get the same error (decision 45).
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
 * The decision for a path without a domain depends on every domain. A later match has a key that is not known yet, so
 * such a decision is valid until any change.
 */
function dependenciesOf({ domain }: ChannelPath, keys: readonly number[]): readonly number[] {
  return domain === undefined ? [...keys, ANY_CHANGE] : keys
}

function credentialsKey(credentials: DeviceCredentials): string {
  if (credentials.kind === 'device') return `${credentials.clientKey} ${credentials.certificate ?? ''}`
  return `${credentials.clientId ?? ''}\n${credentials.secret}`
}

const inDomainKey = (credentials: DeviceCredentials, domain: string) => `${domain}\n${credentialsKey(credentials)}`

const asDevice = ({ domainKey, domainId, clientKey, clientId }: Candidate): IdentifiedDevice => ({
  domainKey,
  domainId,
  clientKey,
  clientId,
})

function isEnabled({ clientStatus, domainStatus }: Candidate): boolean {
  return clientStatus === 'enabled' && domainStatus === 'enabled'
}

function isConnected(one: Candidate, type: ConnectionType): boolean {
  return one.domainStatus === 'enabled' && one.channelStatus === 'enabled' && (one.types & CONNECTION_BITS[type]) !== 0
}
