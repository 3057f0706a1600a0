/**
 * Enrolments: configurations with a profile (contract 9.1, decision 0037). Bindings are resolved at each rendering, so
 * a device that fetches again gets the current secrets and names.
 */
import { openClientSecret } from '#api/devices/index.ts'
import type { AccessPolicy, DomainAccess, UserPrincipal } from '#api/identity/index.ts'
import type { Database, Queryable, Transaction } from '#core/database/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import { isId } from '#core/ids.ts'
import type { Keyring } from '#core/keyring/index.ts'
import {
  findBindings,
  findProfileByKey,
  removeBinding,
  renderProfile,
  requireProfile,
  requireSizeLimit,
  requireUpdateOnRendered,
  setBindings,
  touchBindings,
} from '../profiles/index.ts'
import type { Binding, BindingType, BoundSlot, Profile, RenderBinding, Rendered } from '../profiles/index.ts'
import type { ConfigChanges } from './changes.ts'
import { notFound } from './changes.ts'
import type { BootstrapConfig } from './repository.ts'
import { findConfig, findKeys, setProfile } from './repository.ts'
import type { BindingRequest, PreviewRequest } from './schema.ts'
import type { ConfigSealing } from './sealing.ts'

/** The configuration whose slots are bound, with its profile. */
export type BindingTarget = { clientKey: number; clientId: string; profile: Profile }

export type EnrolmentsDeps = {
  database: Database
  access: AccessPolicy
  keyring: Keyring
  sealing: ConfigSealing
  changes: ConfigChanges
}

/** Replaces secrets in previews. */
const REDACTED = '[redacted]'

export class Enrolments {
  readonly #database: Database
  readonly #access: AccessPolicy
  readonly #keyring: Keyring
  readonly #sealing: ConfigSealing
  readonly #changes: ConfigChanges

  constructor({ database, access, keyring, sealing, changes }: EnrolmentsDeps) {
    this.#database = database
    this.#access = access
    this.#keyring = keyring
    this.#sealing = sealing
    this.#changes = changes
  }

  /**
   * Sets or removes the profile of the configuration. A profile requires `profile_read`, and `update` on each bound
   * client, because it can render secrets that the previous profile did not. Throws `not_found` for an unknown profile.
   */
  async assign(
    caller: UserPrincipal,
    domainId: string,
    clientId: string,
    profileId: string | undefined,
  ): Promise<void> {
    // Checked before the configuration is read, so that a missing permission is reported first.
    if (profileId !== undefined) (await this.#changes.locate(caller, domainId, clientId)).domain.require('profile_read')
    await this.#changes.change(caller, domainId, clientId, async ({ tx, config, domain, record }) => {
      const profile = profileId === undefined ? undefined : await requireProfile(tx, domain.domainKey, profileId, 'use')
      if (profile !== undefined) await requireUpdateOnRendered(tx, domain, { configKey: config.clientKey })
      await setProfile(tx, config.clientKey, profile?.key ?? null, caller.id)
      record('config.assign_profile', { external_id: config.externalId, profile_id: profile?.id ?? '' })
    })
  }

  /**
   * Binds clients and channels to slots. Other slots are unchanged. Requires `update` on a client, whose secret the
   * device gets, and `read` on a channel. Throws `invalid_state` without a profile, `malformed` for an unknown slot,
   * `not_found` for an unknown entity or one without the required permission.
   */
  async bind(
    caller: UserPrincipal,
    domainId: string,
    clientId: string,
    requests: readonly BindingRequest[],
  ): Promise<void> {
    await this.#changes.change(caller, domainId, clientId, async ({ tx, config, domain, record }) => {
      if (config.profileId === null)
        throw new ServiceError('invalid_state', 'the configuration has no profile: set a profile first')
      // The profile is locked, so that a later change of it sees these bindings.
      const profile = await requireProfile(tx, config.domainKey, config.profileId, 'use')
      await this.bindWithin(tx, domain, caller, { ...config, profile }, requests)
      record('config.bind', { external_id: config.externalId, slots: requests.map(({ slot }) => slot) })
    })
  }

  /** Binds in the transaction that creates the configuration. */
  async bindWithin(
    tx: Transaction,
    domain: DomainAccess,
    caller: UserPrincipal,
    { clientKey, clientId, profile }: BindingTarget,
    requests: readonly BindingRequest[],
  ): Promise<void> {
    requireSlots(profile, requests)
    const wanted = requests.map((one) => ({ ...one, resource_id: resourceOf(one, clientId) }))
    const keys = await resourceKeys(tx, domain, wanted)
    const bound = wanted.map(({ slot, type, resource_id: id }, place): BoundSlot => {
      const resourceKey = keys[type].get(id)
      if (resourceKey === undefined)
        throw refuse('not_found', place, 'resource_id', `the ${type} does not exist or you may not bind it`)
      return { slot, type, resourceKey }
    })
    await setBindings(tx, clientKey, bound, caller.id)
  }

  async unbind(caller: UserPrincipal, domainId: string, clientId: string, slot: string): Promise<void> {
    await this.#changes.change(caller, domainId, clientId, async ({ tx, config, record }) => {
      if (!(await removeBinding(tx, config.clientKey, slot))) throw notFound()
      record('config.unbind', { external_id: config.externalId, slots: [slot] })
    })
  }

  /** Records the time of a refresh. Renderings always use current values, so nothing else changes. */
  async refresh(caller: UserPrincipal, domainId: string, clientId: string): Promise<void> {
    await this.#changes.change(caller, domainId, clientId, async ({ tx, config, record }) => {
      await touchBindings(tx, config.clientKey, caller.id)
      record('config.refresh_bindings', { external_id: config.externalId })
    })
  }

  async bindings(caller: UserPrincipal, domainId: string, clientId: string): Promise<Binding[]> {
    const { client } = await this.#changes.locate(caller, domainId, clientId)
    if ((await findConfig(this.#database.db, client.key)) === undefined) throw notFound()
    return await findBindings(this.#database.db, client.key)
  }

  /** Renders a preview without secrets. Throws the same `unprocessable` as the rendering. */
  async preview(
    caller: UserPrincipal,
    domainId: string,
    profileId: string,
    request: PreviewRequest,
  ): Promise<Rendered> {
    const { config_id: configId, config: sample, render_context: variables = {}, bindings: samples = [] } = request
    requireSizeLimit('render_context', variables)
    const domain = await this.#access.enter(caller, domainId)
    domain.require('profile_read')
    const profile = await requireProfile(this.#database.db, domain.domainKey, profileId)
    const located = configId === undefined ? undefined : await this.#changes.locate(caller, domainId, configId)
    const config = located === undefined ? undefined : await findConfig(this.#database.db, located.client.key)
    if (located !== undefined && config === undefined) throw notFound()
    const stored = config === undefined ? [] : await this.#toRender(this.#database.db, config.clientKey, false)
    const given = samples.map((one): RenderBinding => ({
      slot: one.slot,
      type: one.type,
      resourceId: one.resource_id ?? '',
      snapshot: { id: one.resource_id ?? '', ...one.snapshot },
      secret: one.type === 'client' ? { secret: REDACTED, ...one.secret_snapshot } : {},
    }))
    const replaced = new Set(given.map(({ slot }) => slot))
    return await renderProfile(profile, {
      device: {
        id: config?.clientId ?? sample?.id ?? '',
        externalId: config?.externalId ?? sample?.external_id ?? '',
        domainId,
      },
      context: {
        ...profile.defaults,
        ...(config === undefined ? sample?.render_context : this.#sealing.variablesOf(config)),
        ...variables,
      },
      bindings: [...stored.filter(({ slot }) => !replaced.has(slot)), ...given],
    })
  }

  /** Renders for the device. Undefined when its configuration has no profile. */
  async renderFor(config: BootstrapConfig): Promise<Rendered | undefined> {
    const { profileKey } = config
    const profile = profileKey === null ? undefined : await findProfileByKey(this.#database.db, profileKey)
    if (profile === undefined) return undefined
    return await renderProfile(profile, {
      device: { id: config.clientId, externalId: config.externalId, domainId: config.domainId },
      context: { ...profile.defaults, ...this.#sealing.variablesOf(config) },
      bindings: await this.#toRender(this.#database.db, config.clientKey, true),
    })
  }

  async #toRender(db: Queryable, configKey: number, withSecrets: boolean): Promise<RenderBinding[]> {
    const bindings = await findBindings(db, configKey)
    return bindings.map(({ slot, type, resourceId, snapshot, domainKey, secretSealed }) => ({
      slot,
      type,
      resourceId,
      snapshot,
      secret:
        secretSealed === null
          ? {}
          : {
              secret: withSecrets
                ? openClientSecret(this.#keyring, { domainKey, id: resourceId, secretSealed })
                : REDACTED,
            },
    }))
  }
}

function refuse(kind: 'malformed' | 'not_found', place: number, field: string, message: string): ServiceError {
  return new ServiceError(kind, `bindings: ${message}`, { details: [{ path: `/bindings/${place}/${field}`, message }] })
}

/** A profile without slots accepts any slot: its template can still use them. */
function requireSlots({ bindingSlots }: Profile, requests: readonly BindingRequest[]): void {
  const types = new Map(bindingSlots.map(({ name, type }) => [name, type]))
  const seen = new Set<string>()
  for (const [place, { slot, type }] of requests.entries()) {
    const wanted = types.get(slot)
    if (wanted === undefined && types.size > 0)
      throw refuse('malformed', place, 'slot', `the profile has no slot ${slot}: use ${[...types.keys()].join(', ')}`)
    if (wanted !== undefined && wanted !== type)
      throw refuse('malformed', place, 'type', `the slot ${slot} requires a ${wanted}`)
    if (seen.has(slot)) throw refuse('malformed', place, 'slot', `the slot ${slot} is bound twice`)
    seen.add(slot)
  }
}

/** The id for a slot of type client defaults to the client of the configuration. */
function resourceOf({ slot, type, resource_id: id }: BindingRequest, clientId: string): string {
  if ((id ?? '') !== '') return id ?? ''
  if (type === 'client') return clientId
  throw new ServiceError('malformed', `bindings: the slot ${slot} requires a resource_id`)
}

async function resourceKeys(
  tx: Transaction,
  domain: DomainAccess,
  wanted: readonly { type: BindingType; resource_id: string }[],
): Promise<Record<BindingType, Map<string, number>>> {
  const ids = (type: BindingType) => [
    ...new Set(wanted.flatMap((one) => (one.type === type && isId(one.resource_id) ? [one.resource_id] : []))),
  ]
  return {
    client: await findKeys(tx, domain, 'client', ids('client'), 'update'),
    channel: await findKeys(tx, domain, 'channel', ids('channel'), 'read'),
  }
}
