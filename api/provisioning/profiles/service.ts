/**
 * The rules of profiles: one template for many devices (contract 9.1, decision 0037). Profiles have their own actions
 * in the domain (decision 78). A template contains no secrets: the secrets of clients are inserted at rendering, for
 * the device only. A change of the template can expose them, so it requires `update` on every client that it concerns.
 */
import type { AccessPolicy, DomainAccess, DomainAction, Journal, Recorder, UserPrincipal } from '#api/identity/index.ts'
import type { Database, Queryable, Transaction } from '#core/database/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import { isId, newId } from '#core/ids.ts'
import type { Page } from '#core/page.ts'
import type { Profile, ProfileFields, ProfileLock } from './repository.ts'
import {
  concernsOtherClients,
  countUses,
  deleteProfile,
  findProfile,
  insertProfile,
  listProfiles,
  updateProfile,
} from './repository.ts'
import type { Enrolled } from './repository.ts'
import type { BindingSlot, ContentFormat, ContentType, NewProfile, ProfileQuery, ProfileUpdate } from './schema.ts'
import { TemplateFault, parseTemplate } from './template/index.ts'

/** A profile and the domain of the request. */
export type ShownProfile = { profile: Profile; domainId: string }

export type ProfilesDeps = { database: Database; journal: Journal; access: AccessPolicy }

const MAX_DEFAULTS_CHARS = 65_536

const DEFAULT_TYPE: Record<ContentFormat, ContentType> = {
  'go-template': 'text/plain',
  raw: 'text/plain',
  json: 'application/json',
  yaml: 'application/yaml',
  toml: 'application/toml',
}

/**
 * Returns a profile of a domain that the caller has entered. Throws the same `not_found` for an unknown profile and one
 * of another domain.
 */
export async function requireProfile(
  db: Queryable,
  domainKey: number,
  id: string,
  lock?: ProfileLock,
): Promise<Profile> {
  const profile = isId(id) ? await findProfile(db, domainKey, id, lock) : undefined
  if (profile === undefined) throw new ServiceError('not_found', 'profile not found')
  return profile
}

/**
 * Requires `update` on the enrolled clients and on those that are bound to their slots, because a caller who determines
 * the rendering can expose their secrets. Throws `forbidden` without the ids of the clients, which the caller may not
 * be able to read.
 */
export async function requireUpdateOnRendered(
  tx: Transaction,
  domain: DomainAccess,
  enrolled: Enrolled,
): Promise<void> {
  if (await concernsOtherClients(tx, domain, enrolled))
    throw new ServiceError(
      'forbidden',
      'failed to perform authorization: requires update on every client that is enrolled with the profile or bound to its slots',
    )
}

export class ProfilesService {
  readonly #database: Database
  readonly #journal: Journal
  readonly #access: AccessPolicy

  constructor({ database, journal, access }: ProfilesDeps) {
    this.#database = database
    this.#journal = journal
    this.#access = access
  }

  /** Throws `malformed` for an invalid template, and for two slots with the same name. */
  async create(caller: UserPrincipal, domainId: string, input: NewProfile): Promise<ShownProfile> {
    const fields = completed(input)
    const { domainKey } = await this.#enter(caller, domainId, 'profile_create')
    const profile = await this.#journal.change(caller, async (tx, record) => {
      const made = await insertProfile(tx, { ...fields, id: newId(), domainKey, createdBy: caller.id })
      record(this.#entryOf('create', made))
      return made
    })
    return { profile, domainId }
  }

  async get(caller: UserPrincipal, domainId: string, id: string): Promise<ShownProfile> {
    const { domainKey } = await this.#enter(caller, domainId, 'profile_read')
    return { profile: await requireProfile(this.#database.db, domainKey, id), domainId }
  }

  async list(
    caller: UserPrincipal,
    domainId: string,
    { offset, limit, cursor, name }: ProfileQuery,
  ): Promise<Page<ShownProfile>> {
    const { domainKey } = await this.#enter(caller, domainId, 'profile_read')
    const range = { offset, limit, cursor }
    const { total, profiles, next } = await listProfiles(this.#database.db, { domainKey, name, ...range })
    return { total, offset, limit, items: profiles.map((profile) => ({ profile, domainId })), next }
  }

  /**
   * Absent fields are unchanged, and the version increases. Devices get the new content at their next request. Throws
   * `forbidden` without `update` on each client that is enrolled with the profile or bound to a slot of an enrolment.
   */
  async update(caller: UserPrincipal, domainId: string, id: string, input: ProfileUpdate): Promise<ShownProfile> {
    const profile = await this.#change(
      caller,
      domainId,
      id,
      'profile_update',
      async ({ tx, domain, profile: before, record }) => {
        // The row is locked, so no client is enrolled or bound meanwhile.
        await requireUpdateOnRendered(tx, domain, { profileKey: before.key })
        const changed = await updateProfile(tx, before.key, completed(input, before), caller.id)
        record(this.#entryOf('update', changed))
        return changed
      },
    )
    return { profile, domainId }
  }

  /** Throws `conflict` while a configuration uses it. */
  async remove(caller: UserPrincipal, domainId: string, id: string): Promise<void> {
    await this.#change(caller, domainId, id, 'profile_delete', async ({ tx, profile, record }) => {
      const uses = await countUses(tx, profile.key)
      if (uses > 0)
        throw new ServiceError(
          'conflict',
          `${uses} configurations use this profile: set another profile for them first`,
        )
      await deleteProfile(tx, profile.key)
      record(this.#entryOf('remove', profile))
    })
  }

  async #enter(caller: UserPrincipal, domainId: string, action: DomainAction): Promise<DomainAccess> {
    const domain = await this.#access.enter(caller, domainId)
    domain.require(action)
    return domain
  }

  /** Locks the profile of a path and runs `work`, which changes it. */
  async #change<T>(
    caller: UserPrincipal,
    domainId: string,
    id: string,
    action: DomainAction,
    work: (inside: { tx: Transaction; domain: DomainAccess; profile: Profile; record: Recorder }) => Promise<T>,
  ): Promise<T> {
    const domain = await this.#enter(caller, domainId, action)
    return await this.#journal.change(caller, async (tx, record) =>
      work({ tx, domain, profile: await requireProfile(tx, domain.domainKey, id, 'change'), record }),
    )
  }

  #entryOf(operation: string, { domainKey, id, name, version }: Profile) {
    return {
      operation: `bootstrap.profile.${operation}`,
      domainKey,
      entityKeys: [],
      attributes: { profile_id: id, name, version },
    }
  }
}

/** Returns the fields with absent ones from the current profile or the defaults. */
function completed(input: ProfileUpdate, before?: ProfileFields): ProfileFields {
  const given = input.content_format ?? input.template_format
  const contentFormat = given ?? before?.contentFormat ?? 'go-template'
  const fields: ProfileFields = {
    name: input.name ?? before?.name ?? '',
    description: input.description ?? before?.description ?? '',
    contentFormat,
    contentType:
      input.content_type ??
      (given === undefined || given === before?.contentFormat ? before?.contentType : undefined) ??
      DEFAULT_TYPE[contentFormat],
    contentTemplate: input.content_template ?? before?.contentTemplate ?? '',
    defaults: input.defaults ?? before?.defaults ?? {},
    bindingSlots: (input.binding_slots ?? before?.bindingSlots ?? []).map((slot) => ({ required: false, ...slot })),
  }
  requireReadable(fields)
  requireDistinct(fields.bindingSlots)
  requireSizeLimit('defaults', fields.defaults)
  return fields
}

/** Limits the size of variables, which are parsed and copied at every rendering. Throws `malformed`. */
export function requireSizeLimit(field: string, variables: Record<string, unknown>): void {
  if (JSON.stringify(variables).length > MAX_DEFAULTS_CHARS)
    throw refuse(`/${field}`, `is limited to ${MAX_DEFAULTS_CHARS} characters of JSON`)
}

function requireReadable({ contentFormat, contentTemplate }: ProfileFields): void {
  if (contentFormat === 'raw') return
  try {
    parseTemplate(contentTemplate)
  } catch (error) {
    throw error instanceof TemplateFault ? refuse('/content_template', error.message) : error
  }
}

function requireDistinct(slots: readonly BindingSlot[]): void {
  const seen = new Set<string>()
  for (const [place, { name }] of slots.entries()) {
    if (seen.has(name)) throw refuse(`/binding_slots/${place}/name`, `repeats the slot ${name}`)
    seen.add(name)
  }
}

function refuse(path: string, message: string): ServiceError {
  return new ServiceError('malformed', `${path.slice(1)}: ${message}`, { details: [{ path, message }] })
}
