/**
 * The domains, users and tokens of the access matrix, and fresh entities for each of its cells: no cell meets what another one did.
 * Beside them, a tenant that has the ids of what the owner has, and that nobody may see or change.
 */
import { vi } from 'vitest'
import { ACTIONS, SCOPE_ENTITY_TYPES } from '#api/identity/index.ts'
import type { EntityType } from '#api/identity/index.ts'
import type { Database } from '#core/database/index.ts'
import { sql } from '#core/sql.ts'
import { FULL_APP_ADMIN } from '../../tools/generate/full-app.ts'
import type { FullApp } from '../../tools/generate/full-app.ts'
import type { ColumnName, Path, Place } from './callers.ts'
import { COLUMNS } from './callers.ts'
import { EVERYTHING, createEntities } from './entities.ts'
import type { Thing } from './entities.ts'
import { createRequests } from './requests.ts'
import type { Requests } from './requests.ts'
import { createTwin } from './twin.ts'
import type { Twin } from './twin.ts'

/** What the call of one cell may name. `child` is below `group`; the rest is below the `parent` of the domain. */
export type Furniture = {
  domain: Thing
  parent: Thing
  client: Thing
  channel: Thing
  group: Thing
  child: Thing
  other: Thing
  /** Ids of a role on each type of entity, with one member. */
  roles: Record<EntityType, string>
  /** Of a profile that exists. Absent: of none. */
  profile?: string
}
export type ThingName = Exclude<keyof Furniture, 'roles' | 'profile'>
export type Named = ThingName | `role of ${EntityType}`

export type Domain = Thing & { place: Place; top: Thing; parent: Thing }
/** The action that a call needs on one of its things. */
export type Need = { on: ThingName; action: string }

/** Ids of users whom calls are about: two members of every domain, and one who is in none. */
export type People = { readonly bystander: string; readonly leaver: string; readonly outsider: string }

export type World = Pick<Requests, 'send'> & {
  readonly people: People
  readonly domains: Record<Place, Domain>
  readonly tokens: Record<ColumnName, string | undefined>
  readonly twin: Twin
  /** For each set of names these entities, fresh for every column; and roles that give the members exactly what the needs say. */
  furnish(
    needs: readonly Need[],
    extras: readonly string[],
    names: readonly ReadonlySet<Named>[],
  ): Promise<ReadonlyMap<ColumnName, Furniture>[]>
  /** The status and the members of the domain as they were. */
  restore(place: Place): Promise<void>
}

type Row = { key: number }
type User = { id: string; key: number; username: string; secret: string }

const STATUS: Record<Place, string> = { open: 'enabled', disabled: 'disabled', frozen: 'freezed', deleted: 'deleted' }
const PLACES = ['open', 'disabled', 'frozen', 'deleted'] as const satisfies readonly Place[]
const TWO_HOURS_MS = 2 * 3_600_000

export async function createWorld(full: FullApp, database: Database): Promise<World> {
  const { api } = full
  const { db } = database
  const entities = createEntities(db, full.keyring)
  const { newThing, insertGroups, insertRoles, insertGrants } = entities

  const requests = createRequests(full)
  const { made, logIn } = requests

  async function newUser(name: string): Promise<User> {
    const secret = `secret-of-${name}`
    const { id } = await made<{ id: string }>(undefined, 'POST', '/users', {
      first_name: name,
      last_name: `of ${name}`,
      email: `${name}@example.com`,
      credentials: { username: name, secret },
    })
    const { rows } = await sql<Row>`SELECT key FROM users WHERE id = ${id}`.execute(db)
    return { id, key: (rows[0] as Row).key, username: name, secret }
  }
  const names = ['owner', 'second', 'stranger', 'elsewhere', 'closed', 'bystander', 'leaver', 'outsider'] as const
  const paths = COLUMNS.flatMap((column) => ('path' in column ? [column.path as Path] : []))
  const users = {} as Record<(typeof names)[number] | Path, User>
  for (const name of [...names, ...paths]) users[name] = await newUser(name === 'none' ? 'nothing' : name)

  async function newDomain(owner: User, name: string): Promise<Thing> {
    const { access_token: token } = await logIn(owner.username, owner.secret)
    const { id } = await made<{ id: string }>(token, 'POST', '/domains', { name, route: name })
    const { rows } = await sql<Row>`SELECT key FROM domains WHERE id = ${id}`.execute(db)
    return { type: 'domain', id, key: (rows[0] as Row).key }
  }
  const domains = {} as Record<Place, Domain>
  for (const place of PLACES) {
    const domain = await newDomain(users.owner, `matrix-${place}`)
    const [top, parent] = [newThing('group'), newThing('group')]
    await insertGroups(domain.key, [
      { ...top, above: [] },
      { ...parent, above: [top.key] },
    ])
    domains[place] = { ...domain, place, top, parent }
  }
  const twin = await createTwin({ db, entities, requests, of: domains.open, members: [users.bystander, users.leaver] })
  const another = await newDomain(users.elsewhere, 'matrix-another')
  await newDomain(users.stranger, 'matrix-foreign')

  // Every domain beside the open one has an owner of its own, so that the open one is the owner's only domain.
  for (const place of PLACES) {
    if (place === 'open') continue
    await sql`UPDATE grants SET user_key = (SELECT key FROM users WHERE id = ${(await newUser(`of-${place}`)).id})
      WHERE domain_key = ${domains[place].key}`.execute(db)
  }
  const everything = newThing('domain')
  await insertRoles(domains.disabled.key, [{ thing: domains.disabled, role: everything, actions: ACTIONS.domain }])
  await insertGrants(domains.disabled.key, [
    { user: users.closed.key, thing: domains.disabled, roleKey: everything.key },
  ])
  await insertGrants(
    domains.open.key,
    [users.second, users.elsewhere].map((user) => ({ user: user.key, thing: domains.open, roleKey: 0 })),
  )
  const memberRoles = {} as Record<Place, number>
  for (const place of PLACES) {
    const role = newThing('domain')
    memberRoles[place] = role.key
    await insertRoles(domains[place].key, [{ thing: domains[place], role, actions: [] }])
  }
  const firstFreshKey = newThing('domain').key

  async function joinMembers(place: Place): Promise<void> {
    const joining = [users.bystander, users.leaver, ...(place === 'open' ? paths.map((path) => users[path]) : [])]
    await insertGrants(
      domains[place].key,
      joining.map((user) => ({ user: user.key, thing: domains[place], roleKey: memberRoles[place] })),
    )
  }

  for (const place of PLACES) await joinMembers(place)
  const tokens = await newTokens()
  for (const place of PLACES) await restore(place)

  async function newTokens(): Promise<Record<ColumnName, string | undefined>> {
    const { owner, second, stranger, elsewhere, closed } = users
    vi.useFakeTimers({ toFake: ['Date'], now: Date.now() - TWO_HOURS_MS })
    const expired = (await logIn(owner.username, owner.secret)).access_token
    vi.useRealTimers()
    const login = await logIn(owner.username, owner.secret)
    const plain = login.access_token
    const ofPath = async (path: Path) => (await logIn(users[path].username, users[path].secret)).access_token
    const ofPlace = async (place: Place) => (await logIn(`of-${place}`, `secret-of-of-${place}`)).access_token
    const disabled = (await logIn(second.username, second.secret)).access_token
    const { SKEIN_ADMIN_USERNAME: adminName, SKEIN_ADMIN_SECRET: adminSecret } = FULL_APP_ADMIN
    const admin = (await logIn(adminName, adminSecret)).access_token
    await made(admin, 'POST', `/users/${second.id}/disable`)
    const newPat = async (name: string, scopes: readonly { entity_type: string; operation: string }[]) => {
      const pat = await made<{ id: string; secret: string }>(plain, 'POST', '/pats', { name, duration: '24h' })
      for (const scope of scopes) {
        const domain = scope.entity_type === 'users' ? {} : { domain_id: domains.open.id }
        await requests.send(plain, 'PATCH', `/pats/${pat.id}/scope/add`, {
          scopes: [{ ...domain, ...scope, entity_id: '*' }],
        })
      }
      return pat.secret
    }
    const operations = ['create', 'read', 'list', 'update', 'delete', 'share', 'unshare', 'publish', 'subscribe']
    const types = [...SCOPE_ENTITY_TYPES]
    const scopes = types.flatMap((type) => operations.map((operation) => ({ entity_type: type, operation })))
    return {
      nob: undefined,
      exp: expired,
      ref: login.refresh_token,
      dis: disabled,
      str: (await logIn(stranger.username, stranger.secret)).access_token,
      els: (await logIn(elsewhere.username, elsewhere.secret, another.id)).access_token,
      mem: await ofPath('none'),
      red: await ofPath('read'),
      '-A ': await ofPath('rest'),
      '-B ': await ofPath('half'),
      dir: await ofPath('direct'),
      grp: await ofPath('group'),
      anc: await ofPath('ancestor'),
      dom: await ofPath('domain'),
      own: plain,
      bnd: (await logIn(owner.username, owner.secret, domains.open.id)).access_token,
      key: (await made<{ value: string }>(plain, 'POST', '/keys', { type: 3, duration: 3600 })).value,
      pat: await newPat('everything', scopes),
      'p--': await newPat('dashboards', [{ entity_type: 'dashboards', operation: 'read' }]),
      adm: admin,
      mDi: (await logIn(closed.username, closed.secret)).access_token,
      aDi: await ofPlace('disabled'),
      aFr: await ofPlace('frozen'),
      aDe: await ofPlace('deleted'),
    }
  }

  /** What the path gives: actions on things, by the type of the thing as the role's entity names them. */
  function rolesOf(
    path: Path,
    needs: readonly Need[],
    extras: readonly string[],
    at: Furniture,
    domain: Domain,
  ): { thing: Thing; actions: readonly string[] }[] {
    const [first, second] = needs
    if (first === undefined) return []
    const target = at[first.on]
    const wanted = [...needs, { on: first.on, action: 'read' }, ...extras.map((action) => ({ on: first.on, action }))]
    const withReading = [...wanted, ...(second === undefined ? [] : [{ on: second.on, action: 'read' }])]
    const collect = (pick: (need: Need) => { thing: Thing; action: string }) => {
      const byThing = new Map<Thing, Set<string>>()
      for (const need of withReading) {
        const { thing, action } = pick(need)
        byThing.set(thing, (byThing.get(thing) ?? new Set()).add(action))
      }
      return [...byThing].map(([thing, actions]) => ({ thing, actions: [...actions] }))
    }
    const direct = collect(({ on, action }) => ({ thing: at[on], action }))
    // Neither the action itself nor, where the one entity is a group above the other, what hands it down.
    const but = (on: ThingName, lacking: string) => ({
      thing: at[on],
      actions: ACTIONS[at[on].type].filter((one) => one !== lacking && !one.endsWith(`_${lacking}`)),
    })
    const prefixOf = (thing: Thing, prefix: string) => (thing.type === 'group' ? 'subgroup' : `${prefix}${thing.type}`)
    switch (path) {
      case 'none':
        return []
      case 'read':
        return withReading.map(({ on }) => ({ thing: at[on], actions: ['read'] })).filter(isFirst)
      case 'rest':
        return [
          but(first.on, first.action),
          ...(second === undefined ? [] : [but(second.on, first.action === second.action ? '' : first.action)]),
        ]
      case 'half':
        return second === undefined ? [] : [but(first.on, second.action), but(second.on, second.action)]
      case 'direct':
        return target.type === 'domain' ? [] : direct
      case 'group':
        if (target.type === 'domain') return []
        // The parent is not a member of itself: actions on it are in its own role.
        return collect(({ on, action }) => {
          if (on === 'parent') return { thing: domain.parent, action }
          const above = on === 'child' ? at.group : domain.parent
          return { thing: above, action: `${prefixOf(at[on], '')}_${action}` }
        })
      case 'ancestor':
        if (target.type === 'domain') return []
        return collect(({ on, action }) => ({
          thing: domain.top,
          action: `${prefixOf(at[on], 'subgroup_')}_${action}`,
        }))
      case 'domain':
        if (target.type === 'domain') return direct
        return collect(({ on, action }) => ({ thing: domain, action: `${at[on].type}_${action}` }))
    }
  }

  async function furnish(
    needs: readonly Need[],
    extras: readonly string[],
    names: readonly ReadonlySet<Named>[],
  ): Promise<ReadonlyMap<ColumnName, Furniture>[]> {
    const sets = names.map((named) => ({ named, of: new Map<ColumnName, Furniture>() }))
    // What earlier rows left: the domains stay small, and nobody keeps a role.
    await entities.removeFrom(firstFreshKey)
    for (const place of PLACES) {
      const domain = domains[place]
      const given = new Map<string, { user: number; thing: Thing; role: Thing; actions: readonly string[] }>()
      const furnished = COLUMNS.filter((column) => column.place === place).flatMap((column) =>
        sets.map(({ named, of }) => {
          const furniture = newFurniture(domain)
          of.set(column.name, furniture)
          const path = 'path' in column ? (column.path as Path) : undefined
          if (path !== undefined)
            for (const { thing, actions } of rolesOf(path, needs, extras, furniture, domain))
              // Sets share what is above them: one role is enough there.
              given.set(`${path} ${thing.key}`, {
                user: users[path].key,
                thing,
                role: newThing(thing.type),
                actions,
              })
          // The twin has all that the owner has, so that lists have something to confuse.
          return { at: furniture, named: column.name === 'own' ? EVERYTHING : named }
        }),
      )
      await entities.insertFurniture(domain, furnished, users.bystander.key)
      const roles = [...given.values()]
      await insertRoles(domain.key, roles)
      await insertGrants(
        domain.key,
        roles.map(({ user, thing, role }) => ({ user, thing, roleKey: role.key })),
      )
    }
    await twin.mirror(sets.map(({ of }) => of.get('own') as Furniture))
    api.identity.access.invalidateAll()
    return sets.map(({ of }) => of)
  }

  function newFurniture(domain: Domain): Furniture {
    const [group, child, other] = [newThing('group'), newThing('group'), newThing('group')]
    const { parent } = domain
    const roles = { domain: '', client: '', channel: '', group: '' }
    return { domain, parent, client: newThing('client'), channel: newThing('channel'), group, child, other, roles }
  }

  async function restore(place: Place): Promise<void> {
    await sql`UPDATE domains SET status = ${STATUS[place]}, deleted_at = CASE WHEN ${place === 'deleted'} THEN now() END
      WHERE key = ${domains[place].key}`.execute(db)
    await joinMembers(place)
    await sql`INSERT INTO invitations (domain_key, user_key, invited_by, role_key, expires_at)
      VALUES (${domains[place].key}, ${users.outsider.key}, ${users.owner.id}, ${memberRoles[place]}, now() + interval '1 day')
      ON CONFLICT DO NOTHING`.execute(db)
    api.identity.access.invalidateAll()
  }

  return {
    send: requests.send,
    people: { bystander: users.bystander.id, leaver: users.leaver.id, outsider: users.outsider.id },
    domains,
    tokens,
    twin,
    furnish,
    restore,
  }
}

const isFirst = (one: { thing: Thing }, index: number, all: readonly { thing: Thing }[]) =>
  all.findIndex(({ thing }) => thing === one.thing) === index
