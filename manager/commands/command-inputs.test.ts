import { expect, it } from 'vitest'
import { inputsOfCommand, resultOfRun } from './command-inputs.ts'

const command = {
  id: '0b6b7f4e-0000-4000-8000-000000000000',
  name: 'calibrate',
  client_id: '0b6b7f4e-0000-4000-8000-000000000001',
  created_at: '2026-11-30T00:00:00Z',
  expires_at: '2026-12-01T00:00:00Z',
}

it.each([
  ['a payload', 5, ['i32'], [], [5]],
  ['the items of a list', [20, 22], ['i32', 'i32'], [], [20, 22]],
  ['a list for a single parameter', [20, 22], ['list<s32>'], [], [[20, 22]]],
  ['the inputs of the task last', 5, ['i32', 'i32'], [7], [5, 7]],
  ['the inputs of the task alone, if they leave no room', 5, ['i32'], [7], [7]],
  ['nothing without a payload', undefined, ['i32'], [], []],
  ['null, which is a payload', null, ['option<s32>'], [], [null]],
  ['the payload, if the module was not read yet', { a: 1 }, undefined, [7], [{ a: 1 }, 7]],
])('gives a function %s', (_name, payload, params, own, inputs) => {
  const given = payload === undefined ? command : { ...command, payload }
  expect(inputsOfCommand(given, params, own)).toEqual(inputs)
})

it('gives a text the whole command', () => {
  const given = { ...command, payload: { a: 1 } }
  expect(inputsOfCommand(given, ['string', 's32'], [3])).toEqual([JSON.stringify(given), 3])
})

it.each([
  ['one value', [42], 42],
  ['a list of several', [1, 2], [1, 2]],
  ['nothing', [], undefined],
  ['nothing of a run without a result', null, undefined],
  ['a value of a component', 'text', 'text'],
  ['the output of a program as JSON', { exit_code: 0, stdout: '{"a":1}\n', stderr: '' }, { a: 1 }],
  ['the output of a program as text', { exit_code: 0, stdout: 'done\n', stderr: '' }, 'done'],
  ['no output', { exit_code: 0, stdout: ' \n', stderr: 'warning' }, undefined],
  ['bytes', { exit_code: 0, stdout: { base64: '/w==' }, stderr: '' }, { base64: '/w==' }],
])('takes %s as the result', (_name, results, result) => {
  expect(resultOfRun(results)).toEqual(result)
})

it('keeps the digits of an integer that a program writes', () => {
  const result = resultOfRun({ exit_code: 0, stdout: '{"serial":12345678901234567890}', stderr: '' })
  expect(JSON.stringify(result)).toBe('{"serial":12345678901234567890}')
})
