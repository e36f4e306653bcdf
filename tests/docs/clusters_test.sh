#!/usr/bin/env bash
# clusters_test.sh ROOT SCRATCH: clusters.sh accepts the templates of ROOT and reports each kind of mistake.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$1" && pwd)
rm -rf "$2" && mkdir -p "$2/programs" && cd "$2"
for program in train_bert train_resnet50; do
  { echo '#!/bin/sh'; echo 'cat <<END'; cat "$root"/docs/{slurm,kubernetes}/* | grep -oE -- '--[a-z][a-z-]+' | sed 's/^/  /'
    echo END; } >programs/$program
  chmod +x programs/$program
done
templates() {  # templates [FILE EDIT]: copies the templates, and edits one if asked
  rm -rf docs examples .ci && mkdir examples docs .ci && cp "$root/.ci/parts.sh" .ci && cp -r "$root/docs/slurm" "$root/docs/kubernetes" docs
  cp "$root"/examples/*.sh examples
  [ $# -eq 0 ] || sed -i "$2" "$1"
}
check() { "$here/clusters.sh" "$1" . programs >log 2>&1; }
wrong() {  # wrong KIND FILE EDIT
  templates "docs/$2" "$3"
  ! cmp -s "docs/$2" "$root/docs/$2" || { echo "nothing of $2 is changed by: $3"; exit 1; }
  ! check "$1" || { echo "$1 does not see in $2: $3"; exit 1; }
}
templates
for what in scripts options; do check $what || { echo "$what refuses right templates:"; cat log; exit 1; }; done
wrong scripts slurm/train.sbatch 's/^exit .*/if/'
if command -v shellcheck >/dev/null; then wrong scripts slurm/train.sbatch 's/^exit .*/exit $@/'; fi
wrong options slurm/train.sbatch 's/--save-every/--save-each/'
wrong options slurm/train.sbatch 's/(--resume /(--resum /'
wrong options slurm/train.sbatch 's/--epochs/--epoches/'
wrong options kubernetes/jobset.yaml 's/--lr-decay/--decay-lr/'
wrong options kubernetes/indexed_job.yaml 's/--resume=/--resum=/'

templates
code=0
check kubernetes || code=$?
[ $code -ne 77 ] || { cat log; exit 0; }
[ $code -eq 0 ] || { echo "right files of Kubernetes are refused:"; cat log; exit 1; }
at=kubernetes/indexed_job.yaml
wrong kubernetes $at 's/completionMode: .*/completionMode: NonIndexed/'
wrong kubernetes $at 's/completions: 4/completions: 5/'
wrong kubernetes $at 's/--data-parallel=4/--data-parallel=2/'
wrong kubernetes $at 's/-0\.trainer\./-0.tainer./'
wrong kubernetes $at 's/valueFrom: {secretKeyRef.*/value: secret/'
wrong kubernetes $at 's/restartPolicy: Never/restartPolicy: OnFailure/'
wrong kubernetes $at '/activeDeadlineSeconds/d'
wrong kubernetes $at 's/--resume=.shared/--resume=\/tmp/'
wrong kubernetes $at 's/^kind: Job/: kind Job/'
for at in kubernetes/indexed_job.yaml kubernetes/jobset.yaml; do
  wrong kubernetes $at 's/value: "4"/value: "8"/'
  wrong kubernetes $at 's/subdomain: trainer/subdomain: service/'
  wrong kubernetes $at 's/publishNotReadyAddresses: true/publishNotReadyAddresses: false/'
done
wrong kubernetes $at 's/maxRestarts: 4/maxRestarts: 0/'
wrong kubernetes $at 's/enableDNSHostnames: true/enableDNSHostnames: false/'
wrong kubernetes $at 's/-ranks-0-0/-0/'
wrong kubernetes kubernetes/network_policy.yaml 's/app: trainer/app: other/'
