/** The command group `skein context`: it manages the stored contexts and selects the context and domain in use. */
import type { Cli, Command, Group } from '../shared/command.ts'
import { domainIdOf } from '../shared/domain-names.ts'
import { CommandError } from '../shared/failures.ts'
import { changeContexts, claimsOf, readContexts } from '../shared/login-store.ts'
import type { Contexts } from '../shared/login-store.ts'
import { SERVICES } from '../shared/services.ts'
import { arg } from '../shared/values.ts'
import type { Given } from '../shared/values.ts'

export const context: Group = {
  name: 'context',
  summary: 'contexts: addresses, login and domain of each installation',
  description: 'A context holds addresses, a default domain and a login. The first is called default.',
  columns: ['current', 'name', 'url', 'domain', 'username'],
  commands: [
    local('get all', '', 'list the contexts', '', list),
    local('show', '', 'show the context in use and every address', '', show),
    local(
      'create',
      '<name>',
      'create a context; set its addresses with --url and similar flags',
      'plant --url https://skein.plant.example',
      create,
    ),
    local('use', '<name>', 'use this context for later commands', 'plant', use),
    local('domain', '<domain_id>', 'use this domain for later commands; none removes it', 'plant', setDomain),
    local('delete', '<name>', 'delete a context and its login', 'plant', remove),
  ],
}

function local(
  words: string,
  args: string,
  summary: string,
  example: string,
  run: (cli: Cli, given: Given) => Promise<void>,
): Command {
  return { words, args, tail: 'none', summary, example, run }
}

function list(cli: Cli): Promise<void> {
  const all = readContexts(cli.settings.contextsPath)
  const contexts = Object.entries(all.contexts).map(([name, { addresses, domain, login }]) => ({
    current: name === cli.settings.contextName ? '*' : '',
    name,
    url: addresses['url'] ?? addresses['users_url'] ?? '',
    domain: domain ?? '',
    username: login?.username ?? '',
  }))
  cli.output.data({ contexts }, { columns: context.columns ?? [] })
  return Promise.resolve()
}

function show(cli: Cli): Promise<void> {
  const { contextName, configPath, contextsPath, domain } = cli.settings
  const login = cli.session.login()
  const expiresAt = login === undefined ? undefined : claimsOf(login.access_token)?.exp
  cli.output.data({
    context: contextName,
    domain: domain ?? '',
    username: login?.username ?? '',
    token_expires_at: expiresAt === undefined ? '' : new Date(expiresAt * 1000).toISOString(),
    config_file: configPath,
    contexts_file: contextsPath,
    addresses: Object.fromEntries(SERVICES.map((service) => [service, cli.settings.address(service).url])),
  })
  return Promise.resolve()
}

async function create(cli: Cli, given: Given): Promise<void> {
  const name = arg(given, 'name')
  if (!/^[\w.-]{1,64}$/.test(name))
    throw new CommandError('the name of a context must be 1 to 64 letters, digits, dots, _ and -')
  await change(cli, (all) => {
    if (all.contexts[name] !== undefined) throw new CommandError(`context ${name} exists already`)
    const domain = given.flags.get('domain')
    all.contexts[name] = { addresses: cli.settings.givenAddresses, ...(domain === undefined ? {} : { domain }) }
    all.current = name
  })
}

async function use(cli: Cli, given: Given): Promise<void> {
  const name = arg(given, 'name')
  await change(cli, (all) => {
    requireContext(all, name)
    all.current = name
  })
}

async function setDomain(cli: Cli, given: Given): Promise<void> {
  const named = arg(given, 'domain_id')
  const domain = named === 'none' ? named : await domainIdOf(cli, named, undefined)
  await change(cli, (all) => {
    const found = (all.contexts[cli.settings.contextName] ??= { addresses: {} })
    if (domain === 'none') delete found.domain
    else found.domain = domain
  })
}

async function remove(cli: Cli, given: Given): Promise<void> {
  const name = arg(given, 'name')
  await change(cli, (all) => {
    requireContext(all, name)
    delete all.contexts[name]
    if (all.current === name) all.current = Object.keys(all.contexts)[0] ?? 'default'
  })
}

function requireContext(all: Contexts, name: string): void {
  if (all.contexts[name] === undefined)
    throw new CommandError(
      `unknown context ${name}`,
      `contexts: ${Object.keys(all.contexts).join(', ') || 'none'}; skein context create ${name} --url URL`,
    )
}

async function change(cli: Cli, how: (all: Contexts) => void): Promise<void> {
  await changeContexts(cli.settings.contextsPath, how)
  cli.output.ok()
}
