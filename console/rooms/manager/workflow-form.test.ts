import { expect, test } from 'vitest'
import {
  inputsFault,
  jsonOfSteps,
  newStep,
  possibleParents,
  renamed,
  stepsOf,
  tasksOf,
  without,
} from './workflow-form.ts'
import type { Step } from './workflow-form.ts'

let keys = 0
const newKey = () => `new ${keys++}`
const step = (name: string, changes: Partial<Step> = {}): Step => ({ ...newStep(name, name), ...changes })

test('a form and its JSON say the same, with the fields that the form does not show', () => {
  const text = `[
    {"name": "first", "function": "add", "inputs": [1, 12345678901234567890], "priority": 7},
    {"name": "second", "image_url": "registry/x:1", "depends_on": ["first"], "run_if": "failure"}
  ]`
  const steps = stepsOf(text, [], newKey)
  expect(
    steps.map(({ name, source, functionName, dependsOn, runIf, others }) => [
      name,
      source,
      functionName,
      dependsOn,
      runIf,
      others,
    ]),
  ).toEqual([
    ['first', 'none', 'add', [], 'success', { priority: 7 }],
    ['second', 'reference', '', ['first'], 'failure', {}],
  ])
  expect(jsonOfSteps(steps)).toContain('12345678901234567890')
  expect(stepsOf(jsonOfSteps(steps), steps, newKey)).toEqual(steps)
})

test('a file that was chosen stays with the step of its name', () => {
  const file = new File(['x'], 'x.wasm')
  const steps = [step('a', { source: 'file', file })]
  expect(stepsOf('[{"name": "a", "function": "f"}]', steps, newKey)[0]).toMatchObject({
    source: 'file',
    file,
    key: 'a',
  })
  expect(stepsOf('[{"name": "b"}]', steps, newKey)[0]).toMatchObject({ source: 'none', file: undefined })
})

test('what is no list of tasks is said', () => {
  expect(() => stepsOf('[{"name": ', [], newKey)).toThrow(/not JSON/)
  expect(() => stepsOf('{}', [], newKey)).toThrow('The tasks must be a list')
  expect(() => stepsOf('[1]', [], newKey)).toThrow('Task 1 is not an object')
  expect(inputsFault('{"a": 1}')).toMatch(/must be a list/)
  expect(inputsFault('[1')).toMatch(/not JSON/)
  expect(inputsFault(' ')).toBeUndefined()
  expect(() => tasksOf([step('a', { inputs: '1' })])).toThrow(/^a: The inputs must be a list/)
})

test('a step that is renamed or removed takes what depends on it along', () => {
  const steps = [step('a'), step('b', { dependsOn: ['a'] })]
  expect(renamed(steps, 'a', 'one')[1]?.dependsOn).toEqual(['one'])
  expect(without(steps, 'a')[0]?.dependsOn).toEqual([])
})

test('a step can depend on those that do not depend on it', () => {
  const steps = [step('a'), step('b', { dependsOn: ['a'] }), step('c', { dependsOn: ['b'] }), step('d')]
  const parentsOf = (name: string) => possibleParents(steps, steps.find((one) => one.name === name) ?? step(''))
  expect(parentsOf('a')).toEqual(['d'])
  expect(parentsOf('b')).toEqual(['a', 'd'])
  expect(parentsOf('d')).toEqual(['a', 'b', 'c'])
})
