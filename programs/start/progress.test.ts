import { expect, test } from 'vitest'
import { createProgress } from './progress.ts'

function collect(isTTY: boolean) {
  let text = ''
  const write = (part: string | Uint8Array) => {
    text += String(part)
    return true
  }
  return { progress: createProgress({ isTTY, write }), text: () => text }
}

test('a step is a line, which gets its duration on a terminal', () => {
  const { progress, text } = collect(false)
  progress.step('starting PostgreSQL')
  progress.step('opening the ports')
  expect(progress.done()).toBeGreaterThan(0)
  expect(text()).toBe('  starting PostgreSQL ...\n  opening the ports ...\n')
  const terminal = collect(true)
  terminal.progress.step('starting PostgreSQL')
  expect(terminal.text()).toBe('  starting PostgreSQL ...')
  terminal.progress.done()
  expect(terminal.text()).toMatch(/^ {2}starting PostgreSQL \.\.\.\r {2}starting PostgreSQL +\d+\.\d\d s\n$/)
})

test('other output begins in a line of its own, and a start that ended shows nothing more', () => {
  const { progress, text } = collect(true)
  progress.step('opening the ports')
  progress.endLine()
  expect(text()).toBe('  opening the ports ...\n')
  progress.end()
  const before = text()
  progress.step('joining the worker')
  progress.done()
  progress.endLine()
  expect(text()).toBe(before)
})
