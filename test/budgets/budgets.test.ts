// docs/performance.md, Budgets: what an operation of a user costs, by counts that no other load moves
import { afterAll, beforeAll, expect, test } from 'vitest'
import { Counters } from './counters.ts'
import { Measuring } from './measure.ts'
import type { Operation, Sample } from './measure.ts'
import { OPERATIONS, openOperations } from './operations.ts'
import type { OperationName } from './operations.ts'
import { startProduct } from './product.ts'
import { MEASURES, complaint, readBudgets, renderTable, writeBudgets } from './table.ts'
import { WriteAheadLog } from './write-ahead-log.ts'

/** `SKEIN_TEST_BUDGETS=write` records the counts of this run as the new budgets. */
const isWriting = process.env['SKEIN_TEST_BUDGETS'] === 'write'
const WARM_UP = 8
const SAMPLES = 10
/** More samples are taken while there is a complaint: a busy machine makes samples without the work of intervals rare. */
const MAX_ROUNDS = 6

const stack = new AsyncDisposableStack()
const measured = new Map<OperationName, readonly Sample[]>()
let measuring: Measuring
let operations: Record<OperationName, Operation>

beforeAll(async () => {
  const counters = stack.use(new Counters())
  const product = stack.use(await startProduct())
  const log = stack.use(await WriteAheadLog.open(product.address))
  operations = await openOperations(product, stack.use(new DisposableStack()))
  measuring = stack.use(new Measuring({ counters, relay: product.relay, log }))
})
afterAll(async () => {
  await stack.disposeAsync()
  console.log(renderTable(measured))
  if (isWriting) writeBudgets(measured)
})

test.each(OPERATIONS)('%s costs what its budget says', async (name) => {
  await measuring.samples(operations[name], WARM_UP)
  const samples: Sample[] = []
  measured.set(name, samples)
  const budgets = readBudgets()[name]
  let complaints: string[] = []
  for (let round = 1; round <= MAX_ROUNDS; round++) {
    samples.push(...(await measuring.samples(operations[name], SAMPLES)))
    complaints = MEASURES.flatMap((measure) => complaint(name, measure, budgets?.[measure] ?? 0, samples) ?? [])
    if (complaints.length === 0 && !isWriting) break
  }
  if (!isWriting) expect(complaints.join('\n')).toBe('')
})
