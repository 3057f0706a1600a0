import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { RuleIndex } from './rule-index.ts'
import type { RecordFacts, RuleFilter } from './rule-index.ts'

const FACTS: RecordFacts = {
  channel: 'c1',
  subtopic: 'hall.east',
  name: 'temperature',
  client: 'boiler',
  groups: ['g1', 'g2'],
  tags: ['cold', 'north'],
}

const isMet = (filter: RuleFilter, facts: Partial<RecordFacts> = {}) =>
  new RuleIndex([filter], (rule) => rule).match({ ...FACTS, ...facts }).length === 1

describe('a record meets', () => {
  it.each<[filter: RuleFilter, met: boolean]>([
    [{}, true],
    [{ channels: ['c1', 'c2'] }, true],
    [{ channels: ['c2'] }, false],
    [{ channels: [] }, false],
    [{ clients: ['boiler'] }, true],
    [{ clients: [] }, false],
    [{ names: ['humidity', 'temperature'] }, true],
    [{ names: ['humidity'] }, false],
    [{ tags: ['south', 'cold', 'north'] }, true],
    [{ tags: ['south'] }, false],
    [{ groups: ['g2'] }, true],
    [{ groups: ['g3'] }, false],
    [
      {
        channels: ['c1'],
        clients: ['boiler'],
        names: ['temperature'],
        tags: ['cold'],
        groups: ['g1'],
        subtopic: 'hall.>',
      },
      true,
    ],
    [{ channels: ['c1'], clients: ['boiler'], names: ['temperature'], tags: ['south'] }, false],
    [{ clients: ['boiler'], subtopic: 'cellar' }, false],
  ])('%j: %s', (filter, met) => {
    expect(isMet(filter)).toBe(met)
  })

  it.each<[filter: string, subtopic: string, met: boolean]>([
    ['hall.east', 'hall.east', true],
    ['hall', 'hall.east', false],
    ['hall.east.1', 'hall.east', false],
    ['hall.*', 'hall.east', true],
    ['*.east', 'hall.east', true],
    ['*', 'hall.east', false],
    ['*.*.*', 'hall.east', false],
    ['hall.>', 'hall.east', true],
    ['hall.>', 'hall', true],
    ['hall.>', 'cellar', false],
    ['>', '', true],
    ['*', '', false],
    ['', '', true],
    ['', 'hall', false],
  ])('subtopic %s of %s: %s', (subtopic, given, met) => {
    expect(isMet({ subtopic }, { subtopic: given })).toBe(met)
    // Under another condition it is compared and not looked up.
    expect(isMet({ subtopic, clients: ['boiler'] }, { subtopic: given })).toBe(met)
  })
})

it('gives rules once, in their order', () => {
  const rules: (RuleFilter & { id: number })[] = [
    { id: 0, tags: ['north', 'cold'] },
    { id: 1, clients: ['boiler'] },
    { id: 2, channels: ['c1'], names: ['temperature'] },
    { id: 3, groups: ['g1', 'g2'] },
    { id: 4, subtopic: 'hall.*' },
  ]
  const index = new RuleIndex(rules, (rule) => rule)
  expect(index.match(FACTS).map(({ id }) => id)).toEqual([0, 1, 2, 3, 4])
  expect(index.match({ ...FACTS, name: undefined }).map(({ id }) => id)).toEqual([0, 1, 3, 4])
})

it('knows channels without rules', () => {
  const index = new RuleIndex([{ channels: ['c1'] }], (rule: RuleFilter) => rule)
  expect([index.watches('c1'), index.watches('c2')]).toEqual([true, false])
  expect(new RuleIndex([{ names: ['x'] }], (rule: RuleFilter) => rule).watches('c2')).toBe(true)
})

/** A filter read word by word. */
function plainlyMeets(filter: RuleFilter, facts: RecordFacts): boolean {
  const anyOf = (wanted: readonly string[] | undefined, given: readonly string[]) =>
    wanted === undefined || given.some((one) => wanted.includes(one))
  const pattern = filter.subtopic
    ?.split('.')
    .map((element) => (element === '*' ? '[^.]+' : element))
    .join('\\.')
    .replace(/(^|\\\.)>$/, (_all, dot: string) => (dot === '' ? '.*' : '(\\..*)?'))
  return (
    anyOf(filter.channels, [facts.channel]) &&
    anyOf(filter.clients, [facts.client]) &&
    anyOf(filter.names, facts.name === undefined ? [] : [facts.name]) &&
    anyOf(filter.tags, facts.tags) &&
    anyOf(filter.groups, facts.groups) &&
    (pattern === undefined || new RegExp(`^${pattern}$`).test(facts.subtopic))
  )
}

it('chooses as if every rule was compared', () => {
  const some = (prefix: string) =>
    fc.array(
      fc.integer({ min: 0, max: 3 }).map((n) => `${prefix}${n}`),
      { maxLength: 3 },
    )
  const maybe = <T>(value: fc.Arbitrary<T>) => fc.option(value, { nil: undefined, freq: 2 })
  const element = fc.constantFrom('a', 'b', 'c')
  const pattern = fc
    .tuple(fc.array(fc.oneof(element, fc.constant('*')), { maxLength: 3 }), fc.boolean())
    .map(([elements, isOpen]) => [...elements, ...(isOpen ? ['>'] : [])].join('.'))
  const filters = fc.array(
    fc.record({
      channels: maybe(some('ch')),
      subtopic: maybe(pattern),
      names: maybe(some('n')),
      clients: maybe(some('cl')),
      groups: maybe(some('g')),
      tags: maybe(some('t')),
    }),
    { maxLength: 20 },
  )
  const facts = fc.record({
    channel: fc.constantFrom('ch0', 'ch1'),
    subtopic: fc.array(element, { maxLength: 4 }).map((elements) => elements.join('.')),
    name: fc.constantFrom('n0', 'n1', undefined),
    client: fc.constantFrom('cl0', 'cl1'),
    groups: some('g'),
    tags: some('t'),
  })
  fc.assert(
    fc.property(filters, facts, (rules, record) => {
      const index = new RuleIndex(rules, (rule) => rule)
      expect(index.match(record)).toEqual(rules.filter((rule) => plainlyMeets(rule, record)))
    }),
    { numRuns: 2000, seed: 20261129 },
  )
})
