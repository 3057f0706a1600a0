// contract section 3: whatever is done with groups, there is no cycle, no 21st level, and the stored closure is what the parents say
import fc from 'fast-check'
import { expect, test } from 'vitest'
import { startTestApi } from '../harness/api.ts'
import { useWorld } from '../harness/world.ts'
import { faultsOf, groupsOf } from './groups-support.ts'
import type { Group, GroupPage, Groups } from './groups-support.ts'
import { newTenant } from './support.ts'

const api = useWorld(() => startTestApi())
const tenant = useWorld(() => newTenant(api))

const MAX_LEVELS = 20

/** What the groups should be after each step: for each its parent. The plainest description of the rules. */
class Model {
  readonly parents = new Map<string, string | undefined>()

  lineage(id: string): string[] {
    const parent = this.parents.get(id)
    return parent === undefined ? [id] : [id, ...this.lineage(parent)]
  }
  children(id: string): string[] {
    return [...this.parents.keys()].filter((child) => this.parents.get(child) === id)
  }
  height(id: string): number {
    return 1 + Math.max(0, ...this.children(id).map((child) => this.height(child)))
  }
  /** The status of putting roots below a parent. */
  join(children: readonly string[], parent: string): number {
    if (children.some((child) => this.parents.get(child) !== undefined)) return 409
    const lineage = this.lineage(parent)
    if (children.some((child) => lineage.includes(child))) return 422
    if (children.some((child) => lineage.length + this.height(child) > MAX_LEVELS)) return 422
    for (const child of children) this.parents.set(child, parent)
    return 200
  }
}

type Step =
  | { kind: 'create'; parent: number | undefined }
  | { kind: 'chain'; parent: number; length: number }
  | { kind: 'set parent' | 'add child' | 'remove child'; child: number; parent: number }
  | { kind: 'remove parent' | 'remove all children' | 'delete'; group: number }

const index = fc.nat({ max: 1000 })
const step: fc.Arbitrary<Step> = fc.oneof(
  {
    weight: 4,
    arbitrary: fc.record({ kind: fc.constant('create' as const), parent: fc.option(index, { nil: undefined }) }),
  },
  {
    weight: 2,
    arbitrary: fc.record({
      kind: fc.constant('chain' as const),
      parent: index,
      length: fc.integer({ min: 2, max: 15 }),
    }),
  },
  {
    weight: 8,
    arbitrary: fc.record({
      kind: fc.constantFrom('set parent' as const, 'add child' as const, 'remove child' as const),
      child: index,
      parent: index,
    }),
  },
  {
    weight: 4,
    arbitrary: fc.record({
      kind: fc.constantFrom('remove parent' as const, 'remove all children' as const, 'delete' as const),
      group: index,
    }),
  },
)

/** Does the step to both and says what either answered. */
async function take(groups: Groups, model: Model, made: Step): Promise<{ answered: number; expected: number }> {
  const ids = [...model.parents.keys()]
  const pick = (place: number) => ids[place % ids.length] as string
  const create = async (parent: string | undefined) => {
    const answer = await groups.call('POST', '', { name: 'a', parent_id: parent ?? '' })
    const isTooDeep = parent !== undefined && model.lineage(parent).length >= MAX_LEVELS
    if (answer.status === 201) model.parents.set(answer.json<Group>().id, parent)
    return { answered: answer.status, expected: isTooDeep ? 422 : 201 }
  }
  if (made.kind === 'create' || ids.length === 0)
    return await create(
      made.kind === 'create' && made.parent !== undefined && ids.length > 0 ? pick(made.parent) : undefined,
    )
  if (made.kind === 'chain') {
    let last: string | undefined = pick(made.parent)
    for (let level = 0; level < made.length; level++) {
      const result = await create(last)
      if (result.answered !== 201 || result.expected !== 201) return result
      last = [...model.parents.keys()].at(-1)
    }
    return { answered: 201, expected: 201 }
  }
  if ('group' in made) {
    const id = pick(made.group)
    const children = model.children(id)
    if (made.kind === 'remove parent') {
      const { status } = await groups.call('DELETE', `/${id}/parent`)
      model.parents.set(id, undefined)
      return { answered: status, expected: 204 }
    }
    const { status } = await groups.call('DELETE', made.kind === 'delete' ? `/${id}` : `/${id}/children/all`)
    for (const child of children) model.parents.set(child, undefined)
    if (made.kind === 'delete') model.parents.delete(id)
    return { answered: status, expected: 204 }
  }
  const [child, parent] = [pick(made.child), pick(made.parent)]
  switch (made.kind) {
    case 'set parent': {
      const { status } = await groups.call('POST', `/${child}/parent`, { parent_id: parent })
      return { answered: status, expected: child === parent ? 400 : model.join([child], parent) }
    }
    case 'add child': {
      const { status } = await groups.call('POST', `/${parent}/children`, { children_ids: [child] })
      return { answered: status, expected: child === parent ? 400 : model.join([child], parent) }
    }
    case 'remove child': {
      const { status } = await groups.call('DELETE', `/${parent}/children`, { children_ids: [child] })
      const held = model.parents.get(child)
      if (held === parent) model.parents.set(child, undefined)
      return { answered: status, expected: held === undefined || held === parent ? 204 : 409 }
    }
  }
}

test(
  'every step returns what the rules say, and the hierarchy is consistent after each run',
  { timeout: 300_000 },
  async () => {
    await fc.assert(
      fc.asyncProperty(fc.array(step, { minLength: 10, maxLength: 30 }), async (steps) => {
        const created = await tenant.call('POST', '/domains', { name: 'run' })
        const domainId = created.json<{ id: string }>().id
        const groups = groupsOf({ call: tenant.call, domainId })
        const model = new Model()
        for (const made of steps) {
          const { answered, expected } = await take(groups, model, made)
          expect(answered, JSON.stringify(made)).toBe(expected)
        }
        expect(await faultsOf(api, domainId)).toEqual([])
        const stored = new Map<string, string[]>()
        for (let offset = 0; offset <= model.parents.size; offset += 100) {
          const page = (await groups.call('GET', `?limit=100&offset=${offset}&order=created_at`)).json<GroupPage>()
          for (const group of page.groups) stored.set(group.id, group.path.split('.'))
        }
        expect(stored).toEqual(new Map([...model.parents.keys()].map((id) => [id, model.lineage(id).toReversed()])))
      }),
      { numRuns: 20 },
    )
  },
)
