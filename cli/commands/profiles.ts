/** `skein profiles`. */
import type { Group } from '../shared/command.ts'
import { CommandError } from '../shared/failures.ts'
import { arg, isRecord, json, jsonObject } from '../shared/values.ts'
import type { Given } from '../shared/values.ts'
import { idAndRest } from './roles.ts'

const PROFILES = '/{domain!}/clients/bootstrap/profiles'
const ENROLMENTS = '/{domain!}/clients/bootstrap/enrollments'

function idOf(given: Given): string {
  const { id } = idAndRest(given, 'JSON_profile')
  if (id === undefined)
    throw new CommandError('<JSON_profile> must contain "id"', 'or: skein profiles update <profile_id> <JSON_profile>')
  return encodeURIComponent(id)
}

export const profiles: Group = {
  name: 'profiles',
  summary: 'templates of device configurations',
  description:
    'A configuration with a profile (skein bootstrap create with "profile_id") is filled in at each fetch, from the clients and channels that are bound to its slots.',
  columns: ['id', 'name', 'content_format', 'version', 'updated_at'],
  commands: [
    {
      words: 'create',
      args: '<JSON_profile>',
      tail: 'domain',
      summary: 'create a profile; JSON, or @file',
      example: `'{"name": "gateway", "content_format": "json", "content_template": "{\\"id\\": \\"{{.Device.ID}}\\"}"}'`,
      answer: 'created',
      call: {
        method: 'POST',
        service: 'bootstrap',
        path: PROFILES,
        body: (given) => jsonObject(given, 'JSON_profile'),
      },
    },
    {
      words: 'get all',
      args: '',
      tail: 'domain',
      summary: 'list profiles',
      example: '--name gateway',
      call: { method: 'GET', service: 'bootstrap', path: PROFILES, query: ['limit', 'offset', 'name'] },
    },
    {
      words: 'get',
      args: '<profile_id>',
      tail: 'domain',
      summary: 'show a profile',
      example: '<profile_id>',
      call: { method: 'GET', service: 'bootstrap', path: `${PROFILES}/{profile_id}` },
    },
    {
      words: 'update',
      args: '<profile_id> <JSON_profile>',
      tail: 'domain',
      summary: 'change fields of a profile; later fetches use them',
      example: `<profile_id> '{"defaults": {"qos": 1}}'`,
      call: {
        method: 'PATCH',
        service: 'bootstrap',
        path: `${PROFILES}/{profile_id}`,
        body: (given) => jsonObject(given, 'JSON_profile'),
      },
    },
    {
      words: 'update',
      args: '<JSON_profile>',
      tail: 'domain',
      summary: 'change a profile, with the id in the JSON',
      example: `'{"id": "<profile_id>", "defaults": {"qos": 1}}'`,
      isOlder: true,
      call: {
        method: 'PATCH',
        service: 'bootstrap',
        path: (given) => `${PROFILES}/${idOf(given)}`,
        body: (given) => idAndRest(given, 'JSON_profile').rest,
      },
    },
    {
      words: 'remove',
      args: '<profile_id>',
      tail: 'domain',
      summary: 'delete an unused profile',
      example: '<profile_id>',
      answer: 'ok',
      call: { method: 'DELETE', service: 'bootstrap', path: `${PROFILES}/{profile_id}` },
    },
    {
      words: 'preview',
      args: '<profile_id> <JSON_sample>',
      tail: 'domain',
      summary: 'preview the configuration of a device, without secrets',
      example: `<profile_id> '{"config": {"id": "sample"}}'`,
      call: {
        method: 'POST',
        service: 'bootstrap',
        path: `${PROFILES}/{profile_id}/render-preview`,
        body: (given) => jsonObject(given, 'JSON_sample'),
      },
    },
    {
      words: 'assign',
      args: '<profile_id> <client_id>',
      tail: 'domain',
      summary: 'assign a profile to the configuration of a client',
      example: '<profile_id> <client_id>',
      answer: 'ok',
      call: {
        method: 'PATCH',
        service: 'bootstrap',
        path: `${ENROLMENTS}/{client_id}/profile`,
        body: (given) => ({ profile_id: arg(given, 'profile_id') }),
      },
    },
    {
      words: 'bind',
      args: '<client_id> <JSON_bindings>',
      tail: 'domain',
      summary: 'bind clients and channels to the slots of a configuration',
      example: `<client_id> '[{"slot": "device", "type": "client"}]'`,
      answer: 'ok',
      call: {
        method: 'PUT',
        service: 'bootstrap',
        path: `${ENROLMENTS}/{client_id}/bindings`,
        body: (given) => {
          const value = json(given, 'JSON_bindings')
          return isRecord(value) ? value : { bindings: value }
        },
      },
    },
    {
      words: 'bindings',
      args: '<client_id>',
      tail: 'domain',
      summary: 'list the bindings of the slots of a configuration',
      example: '<client_id>',
      columns: ['slot', 'type', 'resource_id', 'snapshot.name'],
      call: { method: 'GET', service: 'bootstrap', path: `${ENROLMENTS}/{client_id}/bindings` },
    },
    {
      words: 'refresh',
      args: '<client_id>',
      tail: 'domain',
      summary: 'read the bound clients and channels of a configuration again',
      example: '<client_id>',
      answer: 'ok',
      call: { method: 'POST', service: 'bootstrap', path: `${ENROLMENTS}/{client_id}/bindings/refresh` },
    },
  ],
}
