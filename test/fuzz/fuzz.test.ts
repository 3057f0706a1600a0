// contract sections 0 and 12, decisions 44 and 45: whatever is asked of any path is answered as openapi.json declares
import { afterAll, beforeAll, describe, test } from 'vitest'
import { OPERATIONS } from './document.ts'
import { fuzz, tallyText } from './fuzz.ts'
import type { World } from './world.ts'
import { startWorld } from './world.ts'

let world: World
beforeAll(async () => {
  world = await startWorld()
})
afterAll(async () => {
  console.log(tallyText())
  await world[Symbol.asyncDispose]()
})

// First, while everything is there.
describe('every read answers as declared', () => {
  test.each(OPERATIONS.filter(({ method }) => method === 'GET'))('$name', (operation) => fuzz(operation, world))
})

describe('every change answers as declared', () => {
  test.each(OPERATIONS.filter(({ method }) => method !== 'GET'))('$name', (operation) => fuzz(operation, world))
})
