/** Routes of rules. */
import { Type } from 'typebox'
import { Id } from '#api/identity/index.ts'
import { DeadLetterSelection, DeadLettersChanged, NoBody, responses } from '#http/index.ts'
import type { RoutePlugin } from '#http/index.ts'
import {
  EnableRule,
  NewRule,
  RuleContactList,
  RuleLetterPage,
  RuleLetterQuery,
  RulePage,
  RuleQuery,
  RuleTrial,
  RuleTrialView,
  RuleUpdate,
  RuleView,
  presentContact,
  presentLetter,
  presentRule,
  presentTrial,
} from './schema.ts'
import type { RulesService } from './service.ts'
import type { Trials } from './trial.ts'

const tags = ['rules']
const PATH = '/:domain_id/rules'
const ONE = `${PATH}/:rule_id`
const inDomain = Type.Object({ domain_id: Id })
const params = Type.Object({ domain_id: Id, rule_id: Id })

type App = Parameters<RoutePlugin>[0]

export function ruleRoutes(rules: RulesService, trials: Pick<Trials, 'try'>): RoutePlugin {
  return (app) => {
    manyRules(app, rules)
    tries(app, trials)
    oneRule(app, rules)
    ruleStates(app, rules)
    ruleContacts(app, rules)
  }
}

function manyRules(app: App, rules: RulesService): void {
  app.post(
    PATH,
    {
      config: { action: 'rule_create', location: '/{domain_id}/rules/{id}' },
      schema: {
        tags,
        summary: 'Create a rule',
        description:
          'The rule reads and acts with the rights of the caller. It also requires `subscribe` on each channel of its source (without channels: `channel_subscribe` on the domain), `publish` on each channel that it publishes to, `task_start` where it starts a task, and `client_read` where it looks at clients.',
        params: inDomain,
        body: NewRule,
        response: responses({ 201: RuleView }, 'conflict', 'quota_exceeded', 'gone'),
      },
    },
    async ({ principal, params: { domain_id: domainId }, body }, reply) => {
      const made = await rules.create(principal, domainId, body)
      void reply.code(201).header('Location', `/${domainId}/rules/${made.id}`)
      return presentRule(made, domainId)
    },
  )
  app.get(
    PATH,
    {
      config: { action: 'rule_read' },
      schema: {
        tags,
        summary: 'List rules',
        params: inDomain,
        querystring: RuleQuery,
        response: responses({ 200: RulePage }),
      },
    },
    async ({ principal, params: { domain_id: domainId }, query }) => {
      const { items, ...page } = await rules.list(principal, domainId, query)
      return { ...page, rules: items.map((one) => presentRule(one, domainId)) }
    },
  )
}

function oneRule(app: App, rules: RulesService): void {
  app.get(
    ONE,
    {
      config: { action: 'rule_read' },
      schema: {
        tags,
        summary: 'View a rule, and what it has done',
        params,
        response: responses({ 200: RuleView }, 'not_found'),
      },
    },
    async ({ principal, params: { domain_id: domainId, rule_id: id } }) =>
      presentRule(await rules.get(principal, domainId, id), domainId),
  )
  app.patch(
    ONE,
    {
      config: { action: 'rule_update' },
      schema: {
        tags,
        summary: 'Change a rule; absent fields are unchanged',
        description:
          'Its position and its open alarms are unchanged, and a pause ends. From then on it acts with the rights of the caller, who needs those of a creation.',
        params,
        body: RuleUpdate,
        response: responses({ 200: RuleView }, 'not_found', 'conflict'),
      },
    },
    async ({ principal, params: { domain_id: domainId, rule_id: id }, body }) =>
      presentRule(await rules.update(principal, domainId, id, body), domainId),
  )
  app.delete(
    ONE,
    {
      config: { action: 'rule_delete' },
      schema: {
        tags,
        summary: 'Delete a rule; its open alarms are cleared and remain',
        params,
        response: responses({ 204: NoBody }, 'not_found'),
      },
    },
    async ({ principal, params: { domain_id: domainId, rule_id: id } }, reply) => {
      await rules.remove(principal, domainId, id)
      return await reply.code(204).send()
    },
  )
}

function ruleStates(app: App, rules: RulesService): void {
  app.post(
    `${ONE}/enable`,
    {
      config: { action: 'rule_update' },
      schema: {
        tags,
        summary: 'Enable a rule, or end its pause',
        description:
          'A disabled rule evaluates messages from now on, or from the position `from`; a paused one goes on where it stopped. The caller needs the rights of a creation.',
        params,
        body: EnableRule,
        response: responses({ 200: RuleView }, 'not_found', 'gone'),
      },
    },
    async ({ principal, params: { domain_id: domainId, rule_id: id }, body }) =>
      presentRule(await rules.enable(principal, domainId, id, body.from), domainId),
  )
  app.post(
    `${ONE}/disable`,
    {
      config: { action: 'rule_update' },
      schema: {
        tags,
        summary: 'Disable a rule',
        description: 'It evaluates nothing until it is enabled. Its open alarms stay.',
        params,
        response: responses({ 200: RuleView }, 'not_found'),
      },
    },
    async ({ principal, params: { domain_id: domainId, rule_id: id } }) =>
      presentRule(await rules.disable(principal, domainId, id), domainId),
  )
}

function tries(app: App, trials: Pick<Trials, 'try'>): void {
  app.post(
    `${PATH}/try`,
    {
      config: { action: 'rule_read' },
      schema: {
        tags,
        summary: 'Try a rule over messages that arrived',
        description:
          'Nothing is stored, published or started. The caller needs the rights of a creation, but `rule_read` in place of `rule_create`. A trial reads some 100,000 records or for 10 s, whatever is first.',
        params: inDomain,
        body: RuleTrial,
        response: responses({ 200: RuleTrialView }, 'rate_limited'),
      },
    },
    async ({ principal, params: { domain_id: domainId }, body }) =>
      presentTrial(await trials.try(principal, domainId, body)),
  )
}

function ruleContacts(app: App, rules: RulesService): void {
  const config = { action: 'rule_update' }
  app.get(
    `${ONE}/contacts`,
    {
      config,
      schema: {
        tags,
        summary: 'List to whom a rule sends mails and webhook requests',
        description: 'With what waits for each, and the keys of the signatures of webhook requests.',
        params,
        response: responses({ 200: RuleContactList }, 'not_found'),
      },
    },
    async ({ principal, params: { domain_id: domainId, rule_id: id } }) => ({
      contacts: (await rules.contacts(principal, domainId, id)).map(presentContact),
    }),
  )
  app.get(
    `${ONE}/dead-letters`,
    {
      config,
      schema: {
        tags,
        summary: 'List mails and webhook requests of a rule that were given up',
        params,
        querystring: RuleLetterQuery,
        response: responses({ 200: RuleLetterPage }, 'not_found'),
      },
    },
    async ({ principal, params: { domain_id: domainId, rule_id: id }, query }) => {
      const { items, ...page } = await rules.deadLetters(principal, domainId, id, query)
      return { ...page, dead_letters: items.map(presentLetter) }
    },
  )
  app.post(
    `${ONE}/dead-letters/retry`,
    {
      config,
      schema: {
        tags,
        summary: 'Deliver dead letters of a rule again',
        params,
        body: DeadLetterSelection,
        response: responses({ 200: DeadLettersChanged }, 'not_found'),
      },
    },
    async ({ principal, params: { domain_id: domainId, rule_id: id }, body }) => ({
      count: await rules.retryDeadLetters(principal, domainId, id, body),
    }),
  )
  app.post(
    `${ONE}/dead-letters/discard`,
    {
      config,
      schema: {
        tags,
        summary: 'Discard dead letters of a rule',
        params,
        body: DeadLetterSelection,
        response: responses({ 200: DeadLettersChanged }, 'not_found'),
      },
    },
    async ({ principal, params: { domain_id: domainId, rule_id: id }, body }) => ({
      count: await rules.discardDeadLetters(principal, domainId, id, body),
    }),
  )
}
