"""clusters.py FILE...: checks that the Jobs and JobSets in Kubernetes files have consistent sizes, names and mounts.

Prints one line for each error, and exits with 1 if there is one.
"""
import os
import re
import sys

import yaml

wrong = []


def check(good, *words):
    if not good:
        wrong.append(" ".join(str(word) for word in words))


def only(items, what):
    check(len(items) == 1, "there is not one", what, "but", len(items))
    return items[0] if items else {}


def jobs_of(document):
    """Returns (spec of the Job, its name, the name of its pods' subdomain) for a Job or a JobSet."""
    name, spec = document["metadata"]["name"], document["spec"]
    if document["kind"] == "Job":
        return [(spec, name, spec["template"]["spec"].get("subdomain"))]
    network = spec.get("network", {})
    check(network.get("enableDNSHostnames"), name, "has no enableDNSHostnames")
    check(network.get("publishNotReadyAddresses"), name, "has no publishNotReadyAddresses")
    check(spec.get("failurePolicy", {}).get("maxRestarts", 0) > 0, name, "is never started anew")
    return [(job["template"]["spec"], "%s-%s-0" % (name, job["name"]), network.get("subdomain"))
            for job in spec["replicatedJobs"]]


def check_service(service, job):
    check(service["spec"].get("clusterIP") == "None", "the Service is not headless")
    check(service["spec"].get("publishNotReadyAddresses"), "the Service has no publishNotReadyAddresses")
    check(service["spec"].get("selector") == {"batch.kubernetes.io/job-name": job},
          "the Service does not select the pods of", job)


def check_job(spec, name, subdomain):
    ranks = spec.get("completions")
    check(spec.get("completionMode") == "Indexed", name, "is not Indexed")
    check(spec.get("parallelism") == ranks, name, "has completions", ranks, "and parallelism", spec.get("parallelism"))
    check("activeDeadlineSeconds" in spec, name, "has no time limit")
    pod = spec["template"]["spec"]
    check(pod.get("restartPolicy") == "Never", name, "starts containers anew by themselves")
    container = only(pod["containers"], "container")
    for rule in spec.get("podFailurePolicy", {}).get("rules", []):
        named = rule.get("onExitCodes", {}).get("containerName", container["name"])
        check(named == container["name"], "a rule is about a container", named)

    variables = {variable["name"]: variable for variable in container["env"]}
    values = {key: variable.get("value") for key, variable in variables.items()}
    check(values.get("DHP_WORLD_SIZE") == str(ranks), name, "has", ranks, "pods, but DHP_WORLD_SIZE is",
          values.get("DHP_WORLD_SIZE"))
    check(values.get("DHP_MASTER_ADDR") == "%s-0.%s.$(NAMESPACE).svc.cluster.local" % (name, subdomain), "rank 0 is",
          name + "-0 in the service", subdomain, "but DHP_MASTER_ADDR is", values.get("DHP_MASTER_ADDR"))
    check((values.get("DHP_MASTER_PORT") or "").isdigit(), "DHP_MASTER_PORT is", values.get("DHP_MASTER_PORT"))
    secret = variables.get("DHP_JOB_SECRET", {}).get("valueFrom", {}).get("secretKeyRef", {})
    check({"name", "key"} <= set(secret), "DHP_JOB_SECRET does not come from a Secret")
    check("DHP_JOB_SECRET_FILE" not in variables, "both forms of the secret are set")
    for at, variable in enumerate(container["env"]):
        before = [other["name"] for other in container["env"][:at]]
        for used in re.findall(r"\$\((\w+)\)", variable.get("value", "")):
            check(used in before, variable["name"], "uses", used + ", which is not set before it")

    options = dict(re.fullmatch(r"--([a-z0-9-]+)(?:=(.*))?", option).groups() for option in container["args"])
    layout = 1
    for axis in ("data", "tensor", "pipeline"):
        layout *= int(options.get(axis + "-parallel", 1))
    check(layout == ranks, "the layout has", layout, "ranks, but there are", ranks, "pods")
    mounts = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    for mount in mounts.values():
        check(mount in volumes, "there is no volume", mount)
    shm = volumes.get(mounts.get("/dev/shm"), {}).get("emptyDir", {})
    check(shm.get("medium") == "Memory" and "sizeLimit" in shm, "/dev/shm is not memory of a stated size")
    save = options.get("resume", "")
    check(any(save.startswith(path + "/") and "persistentVolumeClaim" in volumes.get(mount, {})
              for path, mount in mounts.items()), "--resume", save, "is on no volume that lasts")
    check(int(options.get("save-every", 0)) > 0, "nothing is saved before the end")
    return spec["template"]["metadata"]["labels"]


def main(paths):
    labels, policies = [], []
    for path in paths:
        with open(path) as file:
            documents = list(yaml.safe_load_all(file))
        for document in documents:
            if document["kind"] in ("Job", "JobSet"):
                for spec, name, subdomain in jobs_of(document):
                    labels.append(check_job(spec, name, subdomain))
            if document["kind"] == "Job":
                service = only([each for each in documents if each["kind"] == "Service"], "Service beside a Job")
                check(service["metadata"]["name"] == document["spec"]["template"]["spec"].get("subdomain"),
                      "the pods' subdomain is not the Service")
                check_service(service, document["metadata"]["name"])
            if document["kind"] == "NetworkPolicy":
                policies.append(document["spec"])
        print(os.path.basename(path), [document["kind"] for document in documents])
    check(len(labels) >= 2, "there are", len(labels), "Jobs and JobSets")
    policy = only(policies, "NetworkPolicy")
    selected = policy["podSelector"]["matchLabels"]
    check(policy["ingress"] == [{"from": [{"podSelector": {"matchLabels": selected}}]}],
          "the NetworkPolicy lets in others than the pods of the job")
    check(sorted(policy["policyTypes"]) == ["Egress", "Ingress"], "the NetworkPolicy is for one way only")
    for of_job in labels:
        check(selected.items() <= of_job.items(), "the NetworkPolicy does not hold for pods with", of_job)
    for line in wrong:
        print(line)
    return 1 if wrong else 0


sys.exit(main(sys.argv[1:]))
