/**
 * The suites that take long, as data: how each is run, and the paths whose changes it guards. `npm test` is the gate and runs
 * everything else. A suite may be left out while a committed record of a successful run names a commit since which none of its
 * paths has changed (records.ts). When in doubt, a path belongs to the suite: an unneeded run costs minutes, a missing one a fault.
 */

export type Command = readonly [program: string, ...args: string[]]

export type Preparation = {
  /** A script that installs into the folder that is its argument. */
  script: string
  /** Added to the environment of the suite's commands. PATH is extended, other variables are set. */
  variable:
    | 'COAP_PEERS'
    | 'COMPATIBILITY_CLIENTS'
    | 'HISTORY_ENGINES'
    | 'OPENAPI_TOOLS'
    | 'PATH'
    | 'RECIPE_TOOLS'
    | 'SKEIN_TEST_POSTGRES_FOLDER'
    | 'SKEIN_TEST_SHIPPED'
  /** Below the folder; the folder itself where it is absent. */
  path?: string
}

export type LongSuite = {
  /** What it proves, in a line. */
  subject: string
  prepare: readonly Preparation[]
  /** Each is a run of vitest, or ends with one; arguments for vitest can be appended. */
  runs: readonly { command: Command; environment?: Readonly<Record<string, string>> }[]
  /** Files and folders of the repository, without wildcards. */
  paths: readonly string[]
  /** Programs that the tests start; what these import is part of the suite. */
  programs: readonly string[]
}

/** A change of one of these makes every record invalid. */
export const HARNESS = [
  '.ci',
  '.npmrc',
  'package-lock.json',
  'package.json',
  'test/fixtures',
  'test/harness',
  'test/suites/projects.ts',
  'test/suites/records.ts',
  'test/suites/run.ts',
  'test/suites/table.ts',
  'test/suites/unsteady.ts',
  'tools/suite-reporter.ts',
  'tools/shifted-clock.ts',
  'vitest.config.ts',
] as const

const SERVER = [
  'api',
  'core',
  'examples',
  'guests',
  'http',
  'infrastructure',
  'manager',
  'migrations',
  'older',
  'postgres',
  'programs',
  'proto',
  'proxy',
  'queues',
  'worker',
  'x509',
]
const ALL = 'programs/all.ts'
const WORKER = 'programs/worker.ts'

const project = (name: string, ...args: string[]) => ({
  command: ['vitest', 'run', '--project', name, ...args] as Command,
})

/** SQL that may differ between the versions of PostgreSQL. Protocols and limits are the same on each. */
const ON_EVERY_VERSION = [
  'test/architecture/schema.test.ts',
  'test/core/migrations.test.ts',
  ...['clients-filters', 'domains-list', 'listing-plans', 'listing-search'].map((name) => `test/api/${name}.test.ts`),
  'test/tasks/list-plans.test.ts',
  ...[
    'deletion',
    'export',
    'latest',
    'partial-aggregate',
    'publish',
    'read',
    'read-reference',
    'retention',
    'retention-days',
    'summaries',
    'totals',
    'usage',
  ].map((name) => `test/messages/${name}.test.ts`),
]
const ON_THE_OLDEST_VERSION = [
  ...[
    'access',
    'batches',
    'channels',
    'cursors',
    'dead-letters',
    'dead-letters-of-domain',
    'fences',
    'life',
    'modules',
    'quotas',
    'retention',
    'schedules',
    'several-managers',
    'triggers-behind',
    'workers',
    'workflows',
  ].map((name) => `test/tasks/${name}.test.ts`),
  'test/tasks/simulation',
  'test/programs/tour.test.ts',
  ...['consumers', 'nodes', 'presence', 'series'].map((name) => `test/messages/${name}.test.ts`),
  ...['database', 'group-commit', 'infrastructure', 'log-follower', 'log-tail', 'prepared', 'queue'].map(
    (name) => `test/core/${name}.test.ts`,
  ),
]

/** Tests of guests, and of the processes that run them. */
const IN_THE_SHIPPED_FILE = ['bombs', 'components', 'guests', 'supervision'].map(
  (name) => `test/worker/${name}.test.ts`,
)

/** Test files of the gate that are run again with other surroundings: they must exist, or the run would leave them out silently. */
export const RUN_AGAIN = [...ON_EVERY_VERSION, ...ON_THE_OLDEST_VERSION, ...IN_THE_SHIPPED_FILE]

export const LONG_SUITES = {
  browser: {
    subject: 'the console in Chromium, against the running product',
    prepare: [],
    runs: [project('long:browser')],
    paths: [...SERVER, 'console', 'test/console'],
    programs: [ALL, WORKER],
  },
  clients: {
    subject:
      'published clients of other products, observers of CoAP, generated clients, validators of certificates, and schemathesis on every operation',
    prepare: [
      { script: 'test/compatibility/install.sh', variable: 'COMPATIBILITY_CLIENTS' },
      { script: 'test/openapi/install.sh', variable: 'OPENAPI_TOOLS' },
      { script: 'test/peers/install.sh', variable: 'COAP_PEERS' },
    ],
    // A fuzzer wants the machine.
    runs: [project('long:clients', '--no-file-parallelism')],
    paths: [
      ...SERVER,
      'cli',
      'openapi.json',
      'test/cli',
      'test/compatibility',
      'test/messages/support.ts',
      'test/mqtt/peer.ts',
      'test/mqtt/support.ts',
      'test/openapi',
      'test/peers',
      'tools/openapi-clients.ts',
    ],
    programs: [ALL, WORKER],
  },
  engines: {
    subject: 'archived records as PyIceberg, Polars, DuckDB and chDB read them, by the lines of the guide',
    prepare: [{ script: 'test/history/install.sh', variable: 'HISTORY_ENGINES' }],
    runs: [project('long:engines')],
    paths: [
      ...SERVER,
      'cli',
      'docs/guides/history-in-other-engines.md',
      'test/api/support.ts',
      'test/history',
      'test/messages/archive-support.ts',
      'test/messages/support.ts',
    ],
    programs: [],
  },
  recipes: {
    subject: 'the lines of the guides of modules, with the compilers of each language, and workers behind proxies',
    prepare: [{ script: 'test/recipes/install.sh', variable: 'RECIPE_TOOLS' }],
    runs: [project('long:recipes')],
    paths: [
      'api',
      'cli',
      'core',
      'docs/guides/join-a-worker.md',
      'docs/guides/modules',
      'examples',
      'guests',
      'http',
      'infrastructure',
      'manager',
      'migrations',
      'older',
      'postgres',
      'proto',
      'proxy',
      'queues',
      'test/proxy/running-proxy.ts',
      'test/recipes',
      'test/tasks/support.ts',
      'worker',
      'x509',
    ],
    programs: ['cli/main.ts'],
  },
  containers: {
    subject: 'the image, and every container of docker-compose.yml started, replaced and killed',
    prepare: [],
    runs: [
      { command: ['test/containers/run.sh', 'vitest', 'run', '--project', 'long:containers', '--no-file-parallelism'] },
    ],
    paths: [
      ...SERVER,
      '.dockerignore',
      'Dockerfile',
      'cli',
      'console',
      'deploy',
      'docker-compose.yml',
      'openapi.json',
      'test/containers',
      'test/faults',
      'test/messages/coap-peer.ts',
      'test/programs/deployment-files.ts',
      'tools',
    ],
    programs: [ALL, WORKER],
  },
  cluster: {
    subject: 'PostgreSQL under Patroni and two programs of each kind: each part is killed under load',
    prepare: [{ script: 'test/cluster/install.sh', variable: 'PATH', path: 'bin' }],
    runs: [project('long:cluster')],
    paths: [
      ...SERVER,
      'deploy',
      'test/cluster',
      'test/core/redis-server.ts',
      'test/faults',
      'test/messages/coap-peer.ts',
    ],
    programs: ['programs/api.ts', 'programs/manager.ts', 'programs/proxy.ts', WORKER],
  },
  shipped: {
    subject: 'guests in the Node and the code of the single file of the worker, at each isolation level',
    prepare: [{ script: 'test/suites/unpack-worker.sh', variable: 'SKEIN_TEST_SHIPPED', path: 'worker' }],
    runs: ['namespace', 'uid', 'process'].map((level) => ({
      command: ['vitest', 'run', ...IN_THE_SHIPPED_FILE, '--no-file-parallelism'] as Command,
      environment: { SKEIN_TEST_ISOLATION: level },
    })),
    paths: [...SERVER, 'cli', 'console', 'deploy/systemd', 'test/suites/unpack-worker.sh', 'test/worker', 'tools'],
    programs: [WORKER, 'programs/place.ts'],
  },
  postgres: {
    subject: 'PostgreSQL 15 of Debian, 16 and 17 of npm, beside the embedded 18',
    prepare: [{ script: 'test/suites/install-postgres.sh', variable: 'SKEIN_TEST_POSTGRES_FOLDER' }],
    runs: [
      {
        command: ['vitest', 'run', ...ON_EVERY_VERSION, ...ON_THE_OLDEST_VERSION],
        environment: { SKEIN_TEST_POSTGRES: '/usr/lib/postgresql/15/bin' },
      },
      ...['16', '17'].map((version) => ({
        command: ['vitest', 'run', ...ON_EVERY_VERSION] as Command,
        environment: { SKEIN_TEST_POSTGRES: `$SKEIN_TEST_POSTGRES_FOLDER/node_modules/postgres-${version}` },
      })),
    ],
    paths: [
      ...SERVER,
      ...['api', 'architecture', 'core', 'messages', 'mqtt', 'programs', 'tasks', 'worker'].map(
        (name) => `test/${name}`,
      ),
      'test/suites/install-postgres.sh',
      'test/proxy',
      'tools/generate',
      'tools/tour.ts',
    ],
    programs: [ALL, WORKER],
  },
  calendar: {
    subject:
      'architecture tests in 40 days: another week and another month, so what is generated is the same on every day',
    prepare: [],
    runs: [{ command: ['test/suites/in-40-days.sh', 'vitest', 'run', '--project', 'architecture'] }],
    paths: [
      ...SERVER,
      'cli',
      'openapi.json',
      'test/architecture',
      'test/console/control-sites.ts',
      'test/suites/in-40-days.sh',
      'tools',
    ],
    programs: [],
  },
  fuzz: {
    subject: 'generated requests to every operation, hostile input of every form and random kills, at length',
    prepare: [],
    runs: [
      {
        command: [
          'vitest',
          'run',
          'test/fuzz',
          'test/security/input',
          'test/security/regular-expressions.test.ts',
          'test/faults/loss.test.ts',
          '--no-file-parallelism',
        ],
        environment: { FUZZ_RUNS: '60', SKEIN_TEST_AT_LENGTH: 'true' },
      },
    ],
    paths: [
      ...SERVER,
      'cli',
      'console',
      'openapi.json',
      'test/architecture',
      'test/core/redis-server.ts',
      'test/faults',
      'test/fuzz',
      'test/matrix',
      'test/messages',
      'test/security',
    ],
    programs: [ALL, WORKER],
  },
} as const satisfies Record<string, LongSuite>

export type SuiteName = keyof typeof LONG_SUITES

export const suiteOf = (name: SuiteName): LongSuite => LONG_SUITES[name]
export const SUITE_NAMES = Object.keys(LONG_SUITES) as SuiteName[]

/**
 * Sources that no long suite runs: the gate runs them, or nothing does. Each line says why that is enough. A test finds
 * every other file that no suite guards.
 */
export const GATE_ALONE: Readonly<Record<string, string>> = {
  '.gitignore': 'nothing runs it',
  '.oxfmtrc.json': 'npm run check',
  '.oxlintrc.json': 'npm run check',
  'CHANGELOG.md': 'documents',
  'CONTRIBUTING.md': 'documents',
  LICENSE: 'documents',
  'README.md': 'documents',
  bench: 'benchmarks; nothing is asserted',
  docs: 'documents; those that are run are listed with their suite',
  findings: 'run by hand, outside of the product',
  'redocly.yaml': 'npm run check',
  test: 'suites of the gate; those of long suites are listed with them',
  'tsconfig.json': 'npm run check',
}
