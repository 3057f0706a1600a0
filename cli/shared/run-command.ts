/** Runs one row: one request and the form of its answer, or its own function. */
import { createCli } from './cli.ts'
import { readAgreedConfig } from './folder-consent.ts'
import type { Invocation } from './invocation.ts'
import type { Group } from './command.ts'
import { domainIdOf } from './domain-names.ts'
import { claimsOf } from './login-store.ts'
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
    // A token bound to a domain says which (decision 40); that of an older script goes before our context.
    (credential === undefined ? undefined : claimsOf(credential)?.domain) ??
    cli.settings.domain ??
    (token === undefined ? undefined : claimsOf(token)?.domain)
  const needsId = command.call !== undefined && command.tail === 'domain'
  if (command.call !== undefined && args['domain_id'] !== undefined)
    args['domain_id'] = await domainIdOf(cli, args['domain_id'], credential)
  const given: Given = {
    args,
    flags: invocation.flags,
    credential,
    domain: named !== undefined && needsId ? await domainIdOf(cli, named, credential) : named,
  }
  if (command.run !== undefined) await command.run(cli, given)
  else if (command.call !== undefined)
    cli.show(command.answer ?? 'data', await cli.call(command.call, given), viewOf(group, command))
}

/** Two words are domain and token; one is told by its look, or is the token where no other is known. */
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
