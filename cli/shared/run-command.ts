/** Runs one row: one request and its output, or its own function. */
import { createCli } from './cli.ts'
import { readAgreedConfig } from './folder-consent.ts'
import type { Invocation } from './invocation.ts'
import type { Group } from './command.ts'
import { domainIdOf } from './domain-names.ts'
import { DRY_RUN_VIEW, hiddenHint } from './dry-run.ts'
import { workerIdOf } from './worker-names.ts'
import { UsageError } from './failures.ts'
import { claimsOf } from './login-store.ts'
import { readAll } from './pages.ts'
import { requestOf } from './request.ts'
import { looksLikeToken } from './resolve.ts'
import type { Resolved } from './resolve.ts'
import type { View } from './table.ts'
import type { Given } from './values.ts'

export async function runCommand(
  invocation: Invocation,
  group: Group,
  { command, args, rest }: Resolved,
): Promise<void> {
  const cli = createCli(invocation, await readAgreedConfig(invocation, group.needsServer !== false))
  const { domain, credential } = tailOf(command.tail, rest, cli.session.hasToken())
  const token = credential ?? cli.settings.token?.value
  const named =
    domain ??
    invocation.flags.get('domain') ??
    // The domain that a token is bound to (decision 40) overrides the one of the context.
    (credential === undefined ? undefined : claimsOf(credential)?.domain) ??
    cli.settings.domain ??
    (token === undefined ? undefined : claimsOf(token)?.domain)
  const needsId = (command.call !== undefined || command.usesDomainId === true) && command.tail === 'domain'
  if (command.call !== undefined && args['domain_id'] !== undefined)
    args['domain_id'] = await domainIdOf(cli, args['domain_id'], credential)
  if (command.call !== undefined && args['worker_id'] !== undefined)
    args['worker_id'] = await workerIdOf(cli, args['worker_id'], credential)
  const given: Given = {
    args,
    flags: invocation.flags,
    credential,
    domain: named !== undefined && needsId ? await domainIdOf(cli, named, credential) : named,
  }
  const isAll = given.flags.has('all')
  if (isAll) requirePages(command, given)
  if (command.run !== undefined) await command.run(cli, given)
  else if (command.call !== undefined) {
    const answer = isAll
      ? await readAll(cli, requestOf(command.call, given, cli.settings))
      : await cli.call(command.call, given)
    const isTrial = given.flags.has('dry-run')
    cli.show(isTrial ? 'data' : (command.answer ?? 'data'), answer, isTrial ? DRY_RUN_VIEW : viewOf(group, command))
    const hint = isTrial ? hiddenHint(answer.value) : command.hintOf?.(answer.value)
    if (hint !== undefined) cli.output.hint(hint)
  }
}

/** Throws UsageError for `--all` of a command that lists no pages, or with a flag that selects one page. */
function requirePages({ call }: Resolved['command'], { flags }: Given): void {
  if (call?.query?.includes('offset') !== true) throw new UsageError('--all requires a command that lists with pages')
  const isOther = (pair: string) => /^(?:limit|offset|cursor)=/.test(pair)
  if (flags.has('limit') || flags.has('offset') || flags.all('query').some(isOther))
    throw new UsageError('--all must not be combined with limit, offset or cursor')
}

/** Two words are domain and token; one is recognized by its form, or is the token if no other is set. */
function tailOf(
  tail: Resolved['command']['tail'],
  rest: readonly string[],
  hasToken: boolean,
): { domain: string | undefined; credential: string | undefined } {
  const [first, second] = rest
  if (tail === 'domain' && first !== undefined && second === undefined)
    return looksLikeToken(first) || !hasToken
      ? { domain: undefined, credential: first }
      : { domain: first, credential: undefined }
  return second === undefined ? { domain: undefined, credential: first } : { domain: first, credential: second }
}

function viewOf(group: Group, command: Resolved['command']): View {
  const columns = command.columns ?? group.columns
  return {
    ...(columns === undefined ? {} : { columns }),
    ...(group.labels === undefined ? {} : { labels: group.labels }),
  }
}
