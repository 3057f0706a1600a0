"""A first call with the client that openapi-generator makes: log in, make a domain and a client, list it."""

import sys

import skein_client as skein

base_url, password = sys.argv[1:]


def api_with(token=None):
    return skein.ApiClient(skein.Configuration(host=base_url, access_token=token))


with api_with() as anonymous:
    tokens = skein.TokensApi(anonymous).post_users_tokens_issue(
        skein.IssueToken(username="admin", password=password)
    )

with api_with(tokens.access_token) as api:
    domain = skein.DomainsApi(api).post_domains(skein.DomainCreate(name="python", route="python"))
    clients = skein.ClientsApi(api)
    client = clients.post_clients_in_domain(domain.id, skein.ClientCreate(name="pump"))
    page = clients.get_clients_in_domain(domain.id, limit=5)
    assert [listed.id for listed in page.clients] == [client.id]
    counted = clients.get_clients_in_domain(domain.id, only_total=True)
    assert counted.total == 1 and counted.clients == []
    try:
        clients.get_clients_by_client_id_in_domain(domain.id, domain.id)
        raise AssertionError("an unknown client is found")
    except skein.exceptions.NotFoundException as refusal:
        assert refusal.data.error == skein.ErrorKind.NOT_FOUND
    print(f"made {client.id}")
