/** The projects of vitest. */
import { COMPILE_CACHE } from '../harness/compile-cache.ts'

/**
 * A suite is a project with a folder of its own. `npm test` runs the gate: all projects but `long:*`, which `npm run suites` runs
 * (test/suites/table.ts).
 */
const suite = (
  name: string,
  include: string[],
  options: { needsPostgres?: boolean; needsBuild?: boolean; testTimeout?: number } = {},
) => ({
  test: {
    name,
    include,
    // Far above what a test takes, also on a busy machine: `until` has a deadline of 30 s.
    testTimeout: options.testTimeout ?? 60_000,
    hookTimeout: 120_000,
    env: COMPILE_CACHE,
    // Importing Skein takes a second of processor time. Files of a worker share the modules; what they start, they end.
    isolate: false,
    // As `until` of the harness.
    expect: { poll: { timeout: 30_000 } },
    globalSetup: [
      ...(options.needsPostgres === true ? ['test/harness/postgres.ts'] : []),
      ...(options.needsBuild === true ? ['test/harness/build.ts'] : []),
    ],
  },
})

export const PROJECTS = [
  suite('unit', [
    '{console,core,x509,guests,http,postgres,infrastructure,queues,older,api,proto,manager,worker,proxy,cli,programs,tools}/**/*.test.ts',
  ]),
  suite('architecture', ['test/architecture/**/*.test.ts'], { needsPostgres: true, testTimeout: 240_000 }),
  suite('api', ['test/{api,core,messages,certs,bootstrap,provision,notifications}/**/*.test.ts'], {
    needsPostgres: true,
  }),
  suite('matrix', ['test/matrix/**/*.test.ts'], { needsPostgres: true, testTimeout: 240_000 }),
  suite('security', ['test/security/**/*.test.ts'], { needsPostgres: true, testTimeout: 120_000 }),
  suite('fuzz', ['test/fuzz/**/*.test.ts'], {
    needsPostgres: true,
    // FUZZ_RUNS requests to each operation.
    testTimeout: 15_000 * Number(process.env['FUZZ_RUNS'] ?? 8),
  }),
  suite('database', ['test/database/**/*.test.ts'], { testTimeout: 180_000 }),
  suite('worker', ['test/worker/**/*.test.ts'], { testTimeout: 120_000 }),
  suite('tasks', ['test/{tasks,manager}/**/*.test.ts'], { needsPostgres: true, testTimeout: 120_000 }),
  suite('budgets', ['test/budgets/**/*.test.ts'], { testTimeout: 120_000 }),
  suite('proxy', ['test/proxy/**/*.test.ts'], { testTimeout: 120_000 }),
  suite('mqtt', ['test/mqtt/**/*.test.ts'], { needsPostgres: true, testTimeout: 120_000 }),
  suite('faults', ['test/faults/**/*.test.ts'], { testTimeout: 300_000 }),
  suite('cli', ['test/cli/**/*.test.ts'], { testTimeout: 240_000 }),
  suite('compatibility', ['test/compatibility/{replay,table}.test.ts'], { testTimeout: 240_000 }),
  suite('operations', ['test/operations/**/*.test.ts'], { testTimeout: 240_000 }),
  suite('programs', ['test/programs/**/*.test.ts'], { needsBuild: true, testTimeout: 120_000 }),
  suite('long:browser', ['test/console/**/*.test.ts'], { testTimeout: 120_000 }),
  suite('long:clients', ['test/{openapi,peers}/**/*.test.ts', 'test/compatibility/{go,javascript}.test.ts'], {
    needsPostgres: true,
    testTimeout: 900_000,
  }),
  suite('long:engines', ['test/history/**/*.test.ts'], { needsPostgres: true, testTimeout: 300_000 }),
  suite('long:recipes', ['test/recipes/**/*.test.ts'], { testTimeout: 600_000 }),
  // `npm run containers:ha` runs what takes long.
  suite(
    'long:containers',
    [`test/containers/**/*.${process.env['SKEIN_TEST_CONTAINERS'] === 'ha' ? 'long' : 'test'}.ts`],
    { testTimeout: 180_000 },
  ),
  // `npm run cluster` runs the faults that take long, too.
  suite(
    'long:cluster',
    [`test/cluster/**/*.${process.env['SKEIN_TEST_CLUSTER'] === 'long' ? '{test,long}' : 'test'}.ts`],
    // SKEIN_TEST_TRIALS repeats each fault.
    { testTimeout: 300_000 * Number(process.env['SKEIN_TEST_TRIALS'] ?? 1) },
  ),
]
