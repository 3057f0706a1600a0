/**
 * The layer rule as data: the rooms, what each may import, who owns a third-party package, what stays pure. Checked by
 * `boundaries.test.ts`, drawn in docs/architecture.md. A rule is changed here, with the sentence that a failure prints.
 */

export type Room = {
  name: string
  folder: string
  /** Its folders have faces of their own, for each other as well. */
  isOfParts: boolean
  /** Rooms whose face it may import; its own files always. */
  mayImport: readonly string[]
  /** Files that others may import. */
  face: RegExp
  /** What a failure prints. */
  rule: string
  /** Whether the drawing shows it: only rooms of the product. */
  isDrawn: boolean
}

/** Technology without a domain, which rooms of the product stand on. Core is the lowest. */
export const TECHNOLOGY: readonly string[] = ['core', 'x509', 'guests', 'http', 'postgres', 'infrastructure']

const PRODUCT = [
  ...TECHNOLOGY,
  'older',
  'queues',
  'identity',
  'devices',
  'messages',
  'automation',
  'consumers',
  'rules',
  'views',
  'provisioning',
  'adapters',
  'api',
  'proto',
  'manager',
  'worker',
  'proxy',
  'cli',
  'console',
]

function room(
  name: string,
  folder: string,
  mayImport: readonly string[],
  rule: string,
  options: Partial<Room> = {},
): Room {
  const face = new RegExp(`^${folder}/index\\.ts$`)
  return { name, folder, isOfParts: false, mayImport, face, rule, isDrawn: true, ...options }
}

/** From the bottom up. A file belongs to the last room whose folder contains it. */
export const ROOMS: readonly Room[] = [
  room('core', 'core', [], 'core has the mechanisms that all programs share, and imports no other room', {
    face: /^core\/([a-z0-9-]+\.ts|([a-z0-9-]+\/)+index\.ts)$/,
    isOfParts: true,
  }),
  room('x509', 'x509', ['core'], 'certificates are made without a domain, for devices and for workers'),
  room(
    'guests',
    'guests',
    ['core'],
    'WebAssembly modules are read and called the same in every program, and in a browser',
    {
      face: /^guests\/[a-z0-9-]+\/index\.ts$/,
      isOfParts: true,
    },
  ),
  room('http', 'http', ['core'], 'the HTTP edge serves the routes that it is given, and knows none of them'),
  room('postgres', 'postgres', ['core'], 'the embedded server and backups need the schema and no entity', {
    face: /^postgres\/([a-z0-9-]+\.ts|[a-z0-9-]+\/index\.ts)$/,
    isOfParts: true,
  }),
  room(
    'infrastructure',
    'infrastructure',
    ['core', 'http', 'postgres'],
    'infrastructure starts what every process with a database stands on, and knows nothing of what stands on it',
    { face: /^infrastructure\/(processes\/)?index\.ts$/ },
  ),
  room(
    'older',
    'older',
    [],
    'the table of older forms is data, and knows nothing of the rooms that translate with it',
    {
      face: /^older\/index\.ts$/,
    },
  ),
  room(
    'queues',
    'queues',
    ['core', 'guests', 'proto'],
    'queues contains the tables through which the platform and the manager exchange work',
  ),
  room(
    'api',
    'api',
    [
      'core',
      'http',
      'older',
      'infrastructure',
      'identity',
      'devices',
      'messages',
      'automation',
      'consumers',
      'rules',
      'views',
      'provisioning',
      'adapters',
    ],
    'the files of api/ compose the rooms of the platform and contain no rules',
    // SenML without the platform, for the trial of a module.
    { face: /^api\/(index|senml)\.ts$/ },
  ),
  room('identity', 'api/identity', ['core', 'http', 'older'], 'identity imports no other room of the platform'),
  room(
    'devices',
    'api/devices',
    ['core', 'http', 'older', 'queues', 'identity'],
    'devices imports only identity of the platform, and hands commands that tasks answer to the manager through queues',
  ),
  room(
    'messages',
    'api/messages',
    ['core', 'http', 'identity', 'devices'],
    'messages imports only identity and devices of the platform',
    { face: /^api\/messages\/(index|senml\/index)\.ts$/ },
  ),
  room(
    'provisioning',
    'api/provisioning',
    ['core', 'x509', 'http', 'older', 'identity', 'devices', 'messages'],
    'provisioning imports identity, devices and messages, and creates their entities in one call',
  ),
  room(
    'automation',
    'api/automation',
    ['core', 'queues', 'identity', 'devices', 'messages'],
    'automation imports identity, devices and messages, and exchanges work with the manager through queues',
  ),
  room(
    'consumers',
    'api/consumers',
    ['core', 'http', 'infrastructure', 'identity', 'devices', 'messages'],
    'consumers hold positions in the messages that the room of messages stores',
  ),
  room(
    'rules',
    'api/rules',
    ['core', 'http', 'infrastructure', 'queues', 'identity', 'devices', 'messages', 'consumers'],
    'rules evaluate stored messages from a position, raise alarms, and hand publications and starts to queues',
  ),
  room(
    'views',
    'api/views',
    ['core', 'http', 'queues', 'identity', 'devices', 'messages', 'consumers', 'provisioning'],
    'views read across identity, devices, messages, tasks and notifications, and decide nothing that another room decides',
  ),
  room(
    'adapters',
    'api/adapters',
    ['core', 'http', 'identity', 'devices', 'messages'],
    'adapters convert a protocol to one call of a service; only the files of api/ import them',
    { face: /^api\/adapters\/[a-z]+\/index\.ts$/ },
  ),
  room('proto', 'proto', [], 'proto is the protocol between manager, worker and proxy, and imports no other room'),
  room(
    'manager',
    'manager',
    ['core', 'x509', 'guests', 'http', 'older', 'infrastructure', 'queues', 'proto', 'identity'],
    'the manager imports technology, queues and proto, and only identity of the platform',
    // What a message passes to a function, without the manager, for the trial of a module.
    { face: /^manager\/(index|trigger-calls)\.ts$/ },
  ),
  room('worker', 'worker', ['core', 'x509', 'guests', 'proto'], 'a worker knows the manager by its protocol alone', {
    // A trial needs no session, so it loads no gRPC.
    face: /^worker\/(index|trial\/index)\.ts$/,
  }),
  room('proxy', 'proxy', ['core', 'guests', 'http', 'proto'], 'the proxy knows the manager by its protocol alone'),
  room('cli', 'cli', ['core', 'x509'], 'the command line uses the HTTP API, and imports only technology', {
    face: /^$/,
  }),
  room('console', 'console', ['core', 'guests'], 'the console uses the HTTP API, and imports only technology', {
    face: /^$/,
  }),
  room(
    'programs',
    'programs',
    ['core', 'guests', 'http', 'postgres', 'infrastructure', 'proto', 'api', 'manager', 'worker', 'proxy'],
    'only programs/ composes rooms that do not import each other; no room imports it',
    { face: /^$/ },
  ),
  room('test', 'test', [...PRODUCT, 'architecture', 'tools'], 'no room imports a test', {
    face: /^$/,
    isDrawn: false,
  }),
  room('architecture', 'test/architecture', [...PRODUCT, 'test', 'tools'], 'tools read the table of rooms', {
    face: /^test\/architecture\/rooms\.ts$/,
    isDrawn: false,
  }),
  room('tools', 'tools', [...PRODUCT, 'architecture'], 'no room imports a tool', {
    face: /^tools\/generate\/index\.ts$/,
    isDrawn: false,
  }),
  room('bench', 'bench', PRODUCT, 'no room imports a bench', { face: /^$/, isDrawn: false }),
]

/** The folders of the root that contain rooms. */
export const FOLDERS: readonly string[] = [...new Set(ROOMS.map(({ folder }) => folder.split('/')[0] ?? ''))]

/** Rooms that may open any file of what they may import: they start, measure and take apart what they examine. */
export const EXAMINERS: ReadonlySet<string> = new Set(['test', 'architecture', 'tools', 'bench'])

export type PackageOwner = {
  package: string
  /** Files that may import it. */
  owner: RegExp
  /** Files that may import its types and nothing that runs. */
  types?: RegExp
  rule: string
}

const ROUTES = 'routes\\.ts$'
const CLUSTER = 'manager/(dispatch|modules)/|worker/session/'

/** Who may import a third-party package. A package without a row may be imported by no room of the product. */
/** Where schemas live. */
const SCHEMA_OWNERS = new RegExp(
  `^http/|^core/page\\.ts$|^api/identity/wire/|^api/adapters/http/|(^|/)schema\\.ts$|^manager/model/task-fields\\.ts$|${ROUTES}`,
)

export const PACKAGE_OWNERS: readonly PackageOwner[] = [
  {
    package: 'fastify',
    owner: /^http\//,
    types: new RegExp(
      `${ROUTES}|^api/(api|identity/identity|identity/tokens/(bearer|session-cookie))\\.ts$|^api/adapters/http/|^manager/access/`,
    ),
    rule: 'Fastify belongs to http/; routes, HTTP adapters and the authenticate hooks name its types',
  },
  { package: '@fastify/proxy-addr', owner: /^http\//, rule: 'http/ decides which proxies are trusted' },
  { package: '@fastify/swagger', owner: /^http\//, rule: 'the OpenAPI document is made in http/' },
  { package: '@fastify/swagger-ui', owner: /^http\//, rule: 'the page at /docs is served by http/' },
  {
    package: 'typebox',
    owner: SCHEMA_OWNERS,
    rule: 'schemas live in schema.ts, at the edge and in routes.ts, never in rules',
  },
  {
    package: 'cookie',
    owner: /^api\/identity\/tokens\/session-cookie\.ts$/,
    rule: 'only browser sessions have a cookie',
  },
  { package: 'pino', owner: /^core\/logging\//, rule: 'everybody else gets a Logger passed in' },
  { package: 'pino-pretty', owner: /^core\/logging\//, rule: 'everybody else gets a Logger passed in' },
  {
    package: 'fast-json-stringify',
    owner: /^http\/answers\/serialize\.ts$/,
    rule: 'responses leave through http/',
  },
  ...['api', 'exporter-trace-otlp-proto', 'resources', 'sdk-trace'].map((name) => ({
    package: `@opentelemetry/${name}`,
    owner: /^core\/tracing\/opentelemetry\.ts$/,
    rule: 'spans are started through core/tracing, which loads OpenTelemetry only where it is configured',
  })),
  { package: 'prom-client', owner: /^core\/metrics\//, rule: 'metrics are declared with core/metrics' },
  {
    package: 'ws',
    owner: /^api\/adapters\/(ws\/|mqtt\/websocket\.ts$)/,
    rule: 'WebSocket belongs to its adapter, and to MQTT that is carried by it',
  },
  { package: 'redis', owner: /^core\/(bus|limits)\//, rule: 'Redis is asked in core/bus and core/limits alone' },
  {
    package: 'nodemailer',
    owner: /^api\/identity\/mail\/transport\.ts$/,
    rule: 'whoever sends a mail gives it to the mailer of api/identity/mail',
  },
  {
    package: 'pg',
    owner: /^core\/database\//,
    types:
      /^core\/changelog\/|^postgres\/|^api\/messages\/(archive|export|ingest|live|store|retention)\/|^manager\/writer\//,
    rule: 'core/database makes connections; who writes on a dedicated one names its type',
  },
  {
    package: 'pg-copy-streams',
    owner: /^postgres\/backup\/|^api\/messages\/archive\/export-range\.ts$/,
    rule: 'whole tables are copied by postgres/backup/, and ranges of records by the archive',
  },
  ...['avsc', 'hyparquet-writer'].map((name) => ({
    package: name,
    owner: /^api\/messages\/archive\//,
    rule: 'files for other engines are written by the archive',
  })),
  {
    package: 'aws4fetch',
    owner: /^api\/messages\/archive\/s3-client\.ts$/,
    rule: 'requests to an object store are signed in one place',
  },
  {
    package: '@marcbachmann/cel-js',
    owner: /^api\/rules\/engine\/(language|expression)\.ts$/,
    rule: 'an expression is compiled and evaluated behind the limits of api/rules/engine/',
  },
  { package: 'croner', owner: /^core\/cron\.ts$/, rule: 'schedules are read in one place' },
  {
    package: 'lru-cache',
    owner: /^core\/bounded-cache\.ts$/,
    rule: 'every cache is a BoundedCache: lru-cache itself allocates lists for the maximum number of entries',
  },
  {
    package: '@grpc/grpc-js',
    owner: new RegExp(`^proto/|^(${CLUSTER})|^worker/membership/`),
    rule: 'gRPC belongs to proto, manager/dispatch, worker/session and worker/membership',
  },
  {
    package: '@bufbuild/protobuf',
    owner: new RegExp(`^proto/|^(${CLUSTER})|^worker/(offline|runs|membership)/`),
    rule: 'messages of the protocol are built where they are sent',
  },
  ...[
    '@peculiar/x509',
    '@peculiar/asn1-csr',
    '@peculiar/asn1-ocsp',
    '@peculiar/asn1-schema',
    '@peculiar/asn1-x509',
  ].map((name) => ({
    package: name,
    owner: /^x509\//,
    rule: 'certificates, requests, lists and OCSP are made in x509/',
  })),
  { package: 'asn1js', owner: /^x509\//, rule: 'DER is read and written in x509/' },
  {
    package: 'smol-toml',
    owner:
      /^(cli\/shared\/config-file|api\/provisioning\/provision\/layout|api\/provisioning\/profiles\/notations)\.ts$/,
    rule: 'the configuration file of the command line, the layout of provisioning and documents of profiles are TOML',
  },
  {
    package: 'yaml',
    owner: /^(api\/provisioning\/profiles\/notations|http\/openapi\/yaml-thread|cli\/shared\/rules-file)\.ts$/,
    rule: 'documents of profiles and files of rules are YAML, each read and written in one place, and the OpenAPI document is written as YAML',
  },
  {
    package: 'csv-parse',
    owner: /^cli\/shared\/provisioning-file\.ts$/,
    rule: 'the command line reads a file at once; the platform reads files in turns (api/provisioning/bulk/csv.ts)',
  },
  { package: 'reflect-metadata', owner: /^x509\/library\.ts$/, rule: 'nothing but @peculiar/x509 needs it' },
  {
    package: '@bjorn3/browser_wasi_shim',
    owner: /^guests\/calls\/wasi-preview1\.ts$/,
    rule: 'what a guest can import is in guests/calls/',
  },
  {
    package: '@bytecodealliance/jco-transpile',
    owner: /^guests\/transpiler\/transpile\.ts$/,
    types: /^guests\/transpiled\/transpile-with\.ts$/,
    rule: 'components are transpiled in a process or a thread that ends afterwards',
  },
  ...['react', 'react-dom', '@tanstack/react-router', '@tanstack/react-query', '@tanstack/react-virtual'].map(
    (name) => ({ package: name, owner: /^console\//, rule: 'pages of the browser are in console' }),
  ),
  { package: 'uplot', owner: /^console\/charts\//, rule: 'charts are drawn in console/charts' },
  { package: 'vite', owner: /^console\/vite\.config\.ts$/, rule: 'the console is built as its vite.config.ts says' },
  {
    package: 'acorn',
    owner: /^(guests\/scripts\/check-script|worker\/transpile\/share-definitions)\.ts$/,
    rule: 'transpiled scripts are parsed in a process or a thread that ends afterwards',
  },
]

/** Rooms whose packages are built into files for the browser: they are development packages. */
export const BUNDLED_ROOMS: ReadonlySet<string> = new Set(['console'])

/** Packages of the tests beside the code. */
export const TEST_PACKAGES: ReadonlySet<string> = new Set([
  'vitest',
  'fast-check',
  'typebox',
  'wabt',
  '@bytecodealliance/jco-transpile',
  'cbor-x',
  'mqtt-packet',
  '@grpc/proto-loader',
])

export type RoleRule = {
  /** The files that the rule is about, by name. */
  files: RegExp
  mustNotImport: RegExp
  /** Types may be imported all the same. */
  allowsTypes: boolean
  rule: string
}

/** What runs in a browser too: all that a trial of a module consists of. */
export const IN_BROWSERS = /^(core\/bytes|guests\/(wasm|wasi|calls|transpiled|transpiler))\//
const NOT_IN_BROWSERS = new RegExp(`^(?!${IN_BROWSERS.source})(core|guests)/`)

/** Where SQL is written: by the slice that owns the tables. */
const SQL_OWNERS =
  /^core\/(database|changelog|keyring|nodes)\/|^infrastructure\/|(^|\/)repository\.ts$|^api\/identity\/(access|journal|users|tokens|pats|throttle|roles|groups|domains|listing|quotas)\/|^queues\/|^api\/(devices|provisioning)\/|^api\/messages\/(archive|deletion|export|ingest|live|presence|projections|reader|retained|sessions|store)\/|^api\/(consumers\/(deliveries|log|pages)|(consumers|rules)\/metrics)\.ts$|^manager\/(access|tls|store|workers|modules|dispatch|workflows|schedules)\//

/** Inside a slice: routes or adapter -> service -> repository -> database. */
export const ROLE_RULES: readonly RoleRule[] = [
  {
    files: /^api\/rules\/engine\//,
    mustNotImport: /^(?!(core|api\/rules\/engine)\/|@|[a-z-]+$)/,
    allowsTypes: false,
    rule: 'the engine of rules is pure: times, rows and clients are passed to it',
  },
  {
    files: /^console\/(design|charts|try)\//,
    mustNotImport: /^console\/(api|rooms|shell)\/|^console\/(paths|routes)\.tsx?$|^@tanstack\//,
    allowsTypes: false,
    rule: 'design knows neither the API nor addresses',
  },
  {
    files: /^console\/(?!try\/)/,
    mustNotImport: /^core\/(?!cron\.ts$)|^guests\//,
    allowsTypes: false,
    rule: 'the console uses the HTTP API; only the trial of a module shares code with the worker, and a schedule its reading with the manager',
  },
  {
    files: /^console\/try\//,
    mustNotImport: NOT_IN_BROWSERS,
    allowsTypes: false,
    rule: 'a trial shares with the worker what runs in a browser too',
  },
  {
    files: IN_BROWSERS,
    mustNotImport: /^node:/,
    allowsTypes: true,
    rule: 'what a trial shares with the worker runs in a browser too',
  },
  {
    files: /^(?!worker\/transpile\/entry\.ts$|console\/try\/transpile\.ts$|guests\/transpiler\/)/,
    mustNotImport: /^guests\/transpiler\//,
    allowsTypes: false,
    rule: 'components are transpiled in a process or a thread that ends afterwards',
  },
  {
    files: new RegExp(`^(?!.*(${SQL_OWNERS.source}))`),
    mustNotImport: /^core\/sql\.ts$/,
    allowsTypes: false,
    rule: 'SQL is written by the slice that owns the tables',
  },
  {
    files: /\/routes\.ts$/,
    mustNotImport: /\/repository\.ts$|^core\/sql\.ts$|^pg$|^core\/database\//,
    allowsTypes: false,
    rule: 'routes call one service; they know neither SQL nor the database',
  },
  {
    files: /^api\/adapters\//,
    mustNotImport: /\/repository\.ts$|^core\/sql\.ts$|^pg$|^core\/database\//,
    allowsTypes: false,
    rule: 'an adapter makes one service call; it knows neither SQL nor the database',
  },
  {
    files: /\/service\.ts$/,
    mustNotImport: /\/routes\.ts$|^fastify$|^@fastify\/|^http\/|^pg$/,
    allowsTypes: false,
    rule: 'a service knows no protocol: an MQTT packet and a test reach the same rule',
  },
  {
    files: /\/repository\.ts$/,
    mustNotImport: /\/(routes|service)\.ts$|^fastify$|^http\//,
    allowsTypes: false,
    rule: 'a repository holds the SQL of its tables and calls no rule',
  },
  {
    files: /\/(service|repository)\.ts$/,
    mustNotImport: /^older\//,
    allowsTypes: false,
    rule: 'older forms are translated before a service is called, and after it answered',
  },
  {
    files: /\/schema\.ts$/,
    mustNotImport: /\/(routes|service|repository)\.ts$|^core\/sql\.ts$|^pg$|^core\/database\//,
    // presentX maps a domain value to the wire, so it names the value's type.
    allowsTypes: true,
    rule: 'a schema is data: it may name the types of what it presents, never run a service or SQL',
  },
]

/** Files that decide from their arguments alone: no clock, no randomness, no file, no database. */
export const PURE_FILES: readonly RegExp[] = [
  /^api\/messages\/(senml\/|model\/(topics|exact-json)\.ts$)/,
  /^api\/identity\/access\/actions\.ts$/,
  /^api\/identity\/domains\/route-name\.ts$/,
  /^manager\/(model\/(?!task-fields\.ts$)|placement\/placement\.ts$)/,
  /^worker\/(session\/lease|runtime\/limits)\.ts$/,
  /^proxy\/oci\/(reference|manifest|media-types|challenge|refusal|tar)\.ts$/,
  /^proto\/task-state\.ts$/,
  /^core\/(bytes|errors)\//,
  /^older\//,
  /^guests\/(wasm\/|calls\/(bounded-output|messaging)\.ts$)/,
]

/** What a pure file may import beside other pure files. */
export const PURE_IMPORTS =
  /^core\/(bytes|errors)\/index\.ts$|^guests\/wasm\/index\.ts$|^core\/(cron|digest|ids|time)\.ts$|^proto\/(index\.ts$|gen\/)|^node:(buffer|crypto)$/

/** Text that a pure file must not hold. */
export const IMPURE_TEXT =
  /\b(Date\.now|new Date\(\)|Math\.random|performance\.now|setTimeout|setInterval|randomUUID|randomBytes|process\.)/
