// contract 4.1, 4.2 and 5: what a creation or a change accepts is stored and shown. Fields come from the schemas, so a new one is tested
import type { TSchema } from 'typebox'
import { Compile } from 'typebox/compile'
import { describe, expect, test } from 'vitest'
import { ChannelUpdate, NewChannel } from '#api/devices/channels/schema.ts'
import { ClientUpdate, NewClient } from '#api/devices/clients/schema.ts'
import { GroupUpdate, NewGroup } from '#api/identity/groups/schema.ts'
import { newId } from '#core/ids.ts'
import { startTestApi } from '../harness/api.ts'
import { useWorld } from '../harness/world.ts'
import { newTenant } from './support.ts'

const api = useWorld(() => startTestApi())
const tenant = useWorld(() => newTenant(api))

type Fields = Record<string, unknown>
type Properties = Readonly<Record<string, TSchema>>

/** Values of fields of which not every value of the type is valid. */
const SPECIAL: Readonly<Record<string, () => unknown>> = {
  id: newId,
  status: () => 'disabled',
  credentials: () => ({ identity: newId(), secret: newId() }),
}
/** A reference to another entity: test/api/clients-parents.test.ts and groups-hierarchy.test.ts set them. */
const REFERENCES: ReadonlySet<string> = new Set(['parent_group_id', 'parent_id'])
/** The journal has no secrets, and nothing that only some readers of the entity may see. */
const NOT_IN_JOURNAL: ReadonlySet<string> = new Set(['credentials', 'private_metadata'])

let count = 0
/** The values that fit any field of their type, each time others. */
const candidates = () => [`v${++count}`, [`v${++count}`], ++count, count % 2 === 0, { given: ++count }]

function valueFor(name: string, schema: TSchema): unknown {
  const special = SPECIAL[name]
  const valid = Compile(schema)
  const found = (special === undefined ? candidates() : [special()]).find((value) => valid.Check(value))
  expect(found, `add a value of \`${name}\` to SPECIAL in test/api/fields.test.ts`).toBeDefined()
  return found
}

const valuesFor = (properties: Properties): Fields =>
  Object.fromEntries(
    Object.entries(properties)
      .filter(([name]) => !REFERENCES.has(name))
      .map(([name, schema]) => [name, valueFor(name, schema)]),
  )

const read = async (path: string) => (await tenant.call('GET', path)).json<Fields>()

describe.each([
  { type: 'client', creation: NewClient, change: ClientUpdate },
  { type: 'channel', creation: NewChannel, change: ChannelUpdate },
  { type: 'group', creation: NewGroup, change: GroupUpdate },
])('every field of a $type', ({ type, creation, change }) => {
  const path = (suffix = '') => `/${tenant.domainId}/${type}s${suffix}`
  async function create(): Promise<{ given: Fields; id: string }> {
    const given = valuesFor(creation.properties)
    const made = await tenant.call('POST', path(), given)
    expect(made.status, made.text).toBe(201)
    expect(made.json()).toMatchObject(given)
    return { given, id: made.json<{ id: string }>().id }
  }

  test('of a creation is in the view and in the journal', async () => {
    const { given, id } = await create()
    const { credentials: _hidden, ...shown } = given
    expect(Object.keys(shown).length).toBeGreaterThan(4)
    expect(await read(path(`/${id}`))).toMatchObject(shown)
    const { journals } = await read(
      `/${tenant.domainId}/journal/${type}/${id}?operation=${type}.create&with_attributes=true&with_metadata=true`,
    )
    const [record] = journals as { attributes: Fields; metadata: Fields }[]
    const recorded: Fields = { ...record?.attributes, metadata: record?.metadata }
    const missing = Object.keys(given).filter((name) => !NOT_IN_JOURNAL.has(name) && recorded[name] === undefined)
    expect(missing).toEqual([])
  })

  test('of a change is changed alone, and shown by the next view', async () => {
    const { given, id } = await create()
    const { credentials: _hidden, ...unchanged } = given
    const expected: Fields = { ...unchanged }
    for (const [name, schema] of Object.entries(change.properties)) {
      const value = valueFor(name, schema)
      const changed = await tenant.call('PATCH', path(`/${id}`), { [name]: value })
      expect(changed.status, changed.text).toBe(200)
      expected[name] = value
      expect(await read(path(`/${id}`))).toMatchObject(expected)
    }
  })
})
